"""The table `[server]`, and the address of the server's database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from storage.db.address import Address
from storage.db.process_lock import hold_lock
from storage.settings import store_address
from terrarium.config import MIN_SECRET_LENGTH, Config, ConfigError, Settings, is_short
from terrarium.loopback import is_loopback

RESERVED = frozenset({"admin", "anonymous", "other", "terrarium"})
"""Names that the server itself uses for requests without a named key."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


def require_key_name(name: str) -> None:
    """Raise ValueError, with the reason, unless a key may be called `name`."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: letters, digits, dots, dashes and underscores only")
    if name in RESERVED:
        raise ValueError(f"{name} has a meaning already")


class ServerSettings(Settings):
    """The address of the agent server, and the access to it."""

    table: ClassVar[str] = "server"

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    admin_key: SecretStr | None = Field(
        None,
        description="bearer key that may do everything; needed beyond loopback; other keys "
        "are made by `terrarium keys create`. Tendrils can read terrarium.toml: set it in the "
        "environment of the server's process only",
    )
    keys: dict[str, SecretStr] = Field(
        default_factory=dict,
        description='further keys, as NAME = "secret": each names a tendril, as those of '
        "`terrarium keys create` do, and has no limits",
    )
    max_body_bytes: int = Field(
        4 * 1024 * 1024, ge=1024, description="longest request body, in bytes"
    )
    log_prompts: bool = Field(
        False, description="write prompts to the log; private conversations as well"
    )

    @field_validator("admin_key")
    @classmethod
    def _not_empty(cls, key: SecretStr | None) -> SecretStr | None:
        return key if key and key.get_secret_value() else None

    @field_validator("keys")
    @classmethod
    def _named(cls, keys: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, secret in keys.items():
            require_key_name(name)
            if not secret.get_secret_value():
                raise ValueError(f"the key of {name} is empty")
        return keys

    @model_validator(mode="after")
    def _different(self) -> Self:
        secrets = [secret.get_secret_value() for _, secret in self._secrets()]
        if len(set(secrets)) < len(secrets):
            raise ValueError("two keys are the same, so nobody could tell whose a request is")
        return self

    def _secrets(self) -> Iterator[tuple[str, SecretStr]]:
        """Yield each configured key with the name of its setting."""
        if self.admin_key is not None:
            yield "admin_key", self.admin_key
        for name, secret in self.keys.items():
            yield f"keys.{name}", secret

    def require_key(self) -> None:
        """Raise ConfigError if other machines could use this server without a key or guess one."""
        if is_loopback(self.host):
            return
        if self.admin_key is None and not self.keys:
            raise ConfigError(
                f"the agent server will not listen on {self.host} without a key: set "
                "SERVER_ADMIN_KEY (or [server] admin_key), or SERVER_HOST=127.0.0.1"
            )
        for name, secret in self._secrets():
            if is_short(secret):
                raise ConfigError(
                    f"the agent server will not listen on {self.host} with a key that can be "
                    f"guessed: [server] {name} has fewer than {MIN_SECRET_LENGTH} characters; "
                    "`openssl rand -hex 24` makes a good one"
                )


@contextmanager
def held_address(config: Config) -> Iterator[Address]:
    """Yield the address of the server's database; no command replaces or moves its file meanwhile.

    Raises AlreadyRunning if such a command is at work, and Unavailable if the data folder cannot be
    written.
    """
    address = store_address(config, "server")
    if not isinstance(address, Path):  # with PostgreSQL a replica may have no data folder
        yield address
        return
    with hold_lock(config.data, "server", "terrarium server", shared=True):
        yield address
