"""The tables `[web]`, `[web.tokens.NAME]` and `[web.accounts.NAME]`."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Place, is_private
from terrarium.config import MIN_SECRET_LENGTH, NamedTable, Settings, is_short, split_commas
from terrarium.loopback import is_loopback

_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d{1,5})?")
_ACCOUNT = r"^[A-Za-z0-9_.\-]{1,40}$"
_ADVICE = "`openssl rand -hex 16` makes a good one"


def _fits_a_header(value: SecretStr) -> SecretStr:
    if not all("!" <= char <= "~" for char in value.get_secret_value()):
        raise ValueError(
            "must be ASCII without spaces, because it travels in an HTTP header; " + _ADVICE
        )
    return value


def _names_a_channel(value: str) -> str:
    # A nick instead would open that person's private conversation.
    name = ChannelName.parse(value)
    if name is None or not name.network or not name.is_channel:
        raise ValueError(f'write "network/#channel", for example "irc/{value}"')
    return value


def _names_an_account(value: str) -> str:
    network, _, account = value.partition("/")
    if not network or not account or is_private(account) is False:
        raise ValueError('write "network/account", for example "irc/ada"')
    return value


def _is_an_origin(value: str) -> str:
    if not _ORIGIN.fullmatch(value):
        raise ValueError('write "https://host" or "https://host:port", in lower case, no path')
    return value


def _is_an_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or " " in value:
        raise ValueError('write "https://host" or "https://host/path"')
    return value.rstrip("/")


BearerToken = Annotated[SecretStr, AfterValidator(_fits_a_header)]
_Channel = Annotated[str, AfterValidator(_names_a_channel)]


class TokenSettings(NamedTable):
    """A token that opens some channels only."""

    token: BearerToken = Field(min_length=1, description="bearer token")
    channels: tuple[_Channel, ...] = Field(
        description='the channels that it opens, each as "network/#channel"'
    )
    say: bool = Field(False, description="whether its holder may post there (POST /api/say)")


class AccountSettings(NamedTable):
    """A person who signs in with a token of their own; NAME is the name of the account."""

    token: BearerToken = Field(min_length=1, description="bearer token, known to this person only")
    admin: bool = Field(
        False,
        description="whether they may use the pages for operators, and see and correct the jobs and"
        " memories of channels",
    )
    say: bool = Field(False, description="whether they may post through the bot (POST /api/say)")
    channels: tuple[_Channel, ...] | None = Field(
        None, description="the channels that it opens; all public ones if left out"
    )
    identities: tuple[Annotated[str, AfterValidator(_names_an_account)], ...] = Field(
        (),
        description='their services accounts, each as "network/account", whose memories and'
        " reminders they see and correct here",
    )

    @model_validator(mode="after")
    def _admins_read_everything(self) -> Self:
        if self.admin and self.channels is not None:
            raise ValueError("an admin sees all public channels: leave out channels, or admin")
        return self


class WebSettings(Settings):
    """The address of the pages and of the log API, and access to them."""

    table: ClassVar[str] = "web"

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8081, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    token: BearerToken | None = Field(
        None, description="bearer token; without one only this machine can read the pages"
    )
    public_url: Annotated[str, AfterValidator(_is_an_address)] | None = Field(
        None,
        description='where people reach these pages ("https://logs.example.org"); links to long'
        " answers and those in feeds begin with it",
    )
    proxies: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)] | None = Field(
        None,
        description="addresses or networks of reverse proxies whose X-Forwarded-For and"
        " X-Forwarded-Proto are trusted; by default this machine if public_url is set, else none",
    )
    public: tuple[_Channel, ...] = Field(
        (),
        description='channels ("network/#channel") that anybody may read without a token and that'
        " search engines may list",
    )
    cors_origins: tuple[Annotated[str, AfterValidator(_is_an_origin)], ...] = Field(
        (), description='sites ("https://host") whose scripts may read the log API with a token'
    )
    tokens: dict[str, TokenSettings] = Field(
        default_factory=dict,
        description="further tokens, each for some channels, as tables [web.tokens.NAME]",
    )
    accounts: dict[Annotated[str, Field(pattern=_ACCOUNT)], AccountSettings] = Field(
        default_factory=dict,
        description="people who sign in by their own tokens, as tables [web.accounts.NAME]",
    )

    @property
    def trusted_proxies(self) -> tuple[str, ...]:
        """The addresses and networks of the reverse proxies in front of these pages."""
        assumed = ("127.0.0.1", "::1") if self.public_url else ()
        return assumed if self.proxies is None else self.proxies

    @field_validator("token", mode="before")
    @classmethod
    def _nothing_is_no_token(cls, value: Any) -> Any:
        """Read "" as no token: compose files pass an unset variable as an empty string."""
        return None if value == "" else value

    @model_validator(mode="after")
    def _open_only_to_this_machine(self) -> Self:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached by others, and there is no token, so anybody"
                " could read the log and talk to the model; set WEB_TOKEN (or token in [web]),"
                " or host = 127.0.0.1"
            )
        if self.token is None and (self.tokens or self.accounts):
            raise ValueError(
                "accounts and tokens for some channels close nothing while everything is open; set"
                " WEB_TOKEN (or token in [web]) too"
            )
        return self

    def _secrets(self) -> dict[str, SecretStr]:
        """Return all tokens, by the names of their keys or tables."""
        own = {} if self.token is None else {"token": self.token}
        tokens = {f"tokens.{name}": each.token for name, each in self.tokens.items()}
        return own | tokens | {f"accounts.{n}": each.token for n, each in self.accounts.items()}

    @model_validator(mode="after")
    def _accounts_differ(self) -> Self:
        known: dict[object, str] = {}
        for name, secret in self._secrets().items():
            for mark in (secret, name.lower()):  # memory folds the case of names
                other = known.setdefault(mark, name)
                if other != name and name.startswith("accounts."):
                    raise ValueError(
                        f"{name} has the same token as {other}, or the same name but for case, so"
                        f" nobody could tell them apart; {_ADVICE}"
                    )
        return self

    @model_validator(mode="after")
    def _not_to_be_guessed(self) -> Self:
        public = urlsplit(self.public_url).hostname if self.public_url else None
        if is_loopback(self.host) and (public is None or is_loopback(public)):
            return self  # only this machine can reach the site, directly or through a proxy
        for name, secret in self._secrets().items():
            if is_short(secret):
                raise ValueError(
                    f"{name} has fewer than {MIN_SECRET_LENGTH} characters, and others can reach"
                    f" this site, so it could be guessed; {_ADVICE}"
                )
        return self


def place_of(name: str) -> Place:
    """Return the channel that a validated setting ("network/#channel") names."""
    network, _, channel = name.partition("/")
    return Place(network, channel)
