"""The table `[web]`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from llm.loopback import is_loopback
from storage.config import Section


class WebSettings(Section):
    """Where the pages and the log API are served, and who may read them."""

    table: ClassVar[str] = "web"

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8081, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    token: SecretStr | None = Field(
        None, description="bearer token; without one only this machine can read the pages"
    )

    @field_validator("token", mode="before")
    @classmethod
    def _nothing_is_no_token(cls, value: Any) -> Any:
        """An empty variable, as a compose file passes it, must not become an empty password."""
        return None if value == "" else value

    @field_validator("token")
    @classmethod
    def _fits_a_header(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not all("!" <= char <= "~" for char in value.get_secret_value()):
            raise ValueError(
                "must be ASCII without spaces, because it travels in an HTTP header;"
                " `openssl rand -hex 16` makes a good one"
            )
        return value

    @model_validator(mode="after")
    def _open_only_to_this_machine(self) -> Self:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached by others, and there is no token, so anybody"
                " could read the log and talk to the model; set WEB_TOKEN (or token in [web]),"
                " or host = 127.0.0.1"
            )
        return self
