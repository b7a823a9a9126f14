"""The tables `[mcp.servers.NAME]`."""

from __future__ import annotations

import re
from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from terrarium.config import Settings

_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")
"""The name of a server. It has no `_`, so that its end within a tool's name is unambiguous."""


class McpServerSettings(BaseModel):
    """A foreign server: the program to start, or the address to connect to."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    command: tuple[str, ...] = Field(
        (), description="the program to start, with its arguments; it speaks MCP on standard input"
    )
    env: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="environment of that program, beside PATH, HOME and the like",
    )
    url: str = Field("", description="the address of a server that speaks streamable HTTP")
    token: SecretStr | None = Field(None, description="bearer token for that address")
    tendrils: tuple[str, ...] = Field(
        min_length=1, description="the tendrils whose people may use it, such as irc"
    )
    tools: tuple[str, ...] = Field(
        ("*",), description="the tools to offer, by their names there; * stands for any letters"
    )
    reads: tuple[str, ...] = Field(
        (), description="those of the tools that only read; each other runs once per question"
    )
    needs: str = Field(
        "",
        description="the right that who asks must have; on IRC admins have `teach` and `operate`",
    )
    timeout: float = Field(30.0, gt=0, le=600, description="seconds that a tool may take")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value and (urlsplit(value).scheme not in ("http", "https") or " " in value):
            raise ValueError('write "https://host/path"')
        return value

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either the command that starts the server, or its url")
        if self.token and not self.url:
            raise ValueError("a token goes with a url; a program gets its secrets in env")
        return self


class McpSettings(Settings):
    """MCP servers whose tools the model may use."""

    table: ClassVar[str] = "mcp"

    servers: dict[str, McpServerSettings] = Field(
        default_factory=dict, description="the servers, as tables [mcp.servers.NAME]"
    )

    @field_validator("servers")
    @classmethod
    def _names_fit(cls, value: dict[str, McpServerSettings]) -> dict[str, McpServerSettings]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f'the name "{name}" has to be a letter and at most 15 letters or digits,'
                    " in lower case: it begins the names of the tools"
                )
        return value
