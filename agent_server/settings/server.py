"""The table `[server]`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, SecretStr, field_validator

from terrarium.config import ConfigError, Settings
from terrarium.loopback import is_loopback


class ServerSettings(Settings):
    """The address of the agent server, and the access to it."""

    table: ClassVar[str] = "server"

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    admin_key: SecretStr | None = Field(
        None,
        description="bearer key that may do everything; needed beyond loopback; other keys "
        "are made by `terrarium keys create`",
    )
    max_body_bytes: int = Field(
        4 * 1024 * 1024, ge=1024, description="longest request body, in bytes"
    )
    log_prompts: bool = Field(
        False, description="write what the model is asked to the log; private talk as well"
    )

    @field_validator("admin_key")
    @classmethod
    def _not_empty(cls, key: SecretStr | None) -> SecretStr | None:
        return key if key and key.get_secret_value() else None

    def require_key(self) -> None:
        """Raise ConfigError when others could reach this server without a key."""
        if self.admin_key is None and not is_loopback(self.host):
            raise ConfigError(
                f"the agent server will not listen on {self.host} without a key: set "
                "SERVER_ADMIN_KEY (or [server] admin_key), or SERVER_HOST=127.0.0.1"
            )
