"""The tables `[server]` and `[model]`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from llm.loopback import is_loopback
from storage.config import ConfigError, Section

Tools = Literal["native", "constrained", "forced"]


class ServerSettings(Section):
    """Where the agent server listens and who may use it."""

    table: ClassVar[str] = "server"

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    admin_key: SecretStr | None = Field(
        None, description="bearer key that every request must carry; needed beyond loopback"
    )
    max_body_bytes: int = Field(
        4 * 1024 * 1024, ge=1024, description="longest request body, in bytes"
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


class ModelSettings(Section):
    """Which model answers: a GGUF file in the embedded engine, or somebody else's server."""

    table: ClassVar[str] = "model"

    path: Path | None = Field(
        None, description="GGUF file for the embedded engine; by default a small model is pulled"
    )
    upstream: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="OpenAI-compatible base URLs, separated by commas, instead of a file"
    )
    upstream_key: SecretStr | None = Field(None, description="bearer key for the upstream")
    upstream_model: str | None = Field(
        None, description="the model's name at the upstream; by default the first it lists"
    )
    name: str = Field("terra", min_length=1, description="the name clients ask for")
    context: int = Field(8192, ge=256, description="tokens of prompt and answer in one request")
    slots: int = Field(2, ge=1, le=64, description="requests the embedded engine runs at once")
    threads: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        description="threads of the embedded engine; by default one for each core",
    )
    tools: Tools | None = Field(
        None,
        description="who makes tool calls: the engine (native), this server (constrained), or this "
        "server for requests that force a call and nobody for others (forced: for models too small "
        "to choose); by default native for an upstream, constrained for a GGUF file of yours, "
        "forced for the small default model",
    )
    max_tokens: int = Field(
        1024, ge=1, description="longest answer when the request names no limit, in tokens"
    )
    timeout: float = Field(300, gt=0, description="how long the engine may be silent, in seconds")
    cache_dir: Path | None = Field(
        None, description="folder for pulled models; by default terrarium/models in the user cache"
    )

    @field_validator("path", "cache_dir", mode="before")
    @classmethod
    def _expand(cls, value: object) -> object:
        if value == "":
            return None
        return Path(value).expanduser() if isinstance(value, str) else value

    @field_validator("upstream", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("upstream")
    @classmethod
    def _base_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url} is not a URL; write it as http://HOST:PORT")
        return tuple(url.rstrip("/").removesuffix("/v1") for url in urls)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.path and self.upstream:
            raise ValueError(
                "path and upstream are both set; keep the GGUF file or the server, not both"
            )
        return self

    @property
    def tool_mode(self) -> Tools:
        """Who makes tool calls, the default filled in."""
        default: Tools = "native" if self.upstream else "constrained" if self.path else "forced"
        return self.tools or default
