"""The tables `[irc]` and `[irc.networks.NAME]`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from harnesses.irc.channel_settings import ChannelKeys
from harnesses.irc.protocol.message import parse
from terrarium.config import Config, ConfigError, Settings, require_known, split_commas
from terrarium.entry_points import entry_points


def _mechanisms(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return SASL mechanism names in upper case. Raises ValueError for an unknown one."""
    for name in names:
        if name.upper() not in MECHANISMS:
            raise ValueError(f"{name!r} is not one of {', '.join(MECHANISMS)}")
    return tuple(name.upper() for name in names)


def _channels(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the channels as given. Raises ValueError unless each is "#name" or "#name key"."""
    for name in names:
        if not _CHANNEL.fullmatch(name.strip()):
            raise ValueError(
                f"{name!r} is not the name of a channel: it begins with # (or &, + or !) and has"
                ' no blanks or commas; a key may follow after one blank, as in "#name key"'
            )
    return names


def _fingerprints(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return SHA-256 digests in lower-case hexadecimal without separators. Raises ValueError."""
    plain = tuple(text.replace(":", "").replace(" ", "").lower() for text in texts)
    if not all(re.fullmatch("[0-9a-f]{64}", text) for text in plain):
        raise ValueError("a SHA-256 fingerprint is 64 hexadecimal digits")
    return plain


def _lines(lines: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    """Return the lines as given. Raises ValueError unless each is one IRC message."""
    for line in lines:
        message = parse(line.get_secret_value())
        if message is None or message.source or set(line.get_secret_value()) & set("\r\n\0"):
            raise ValueError("each is one line as a client sends it: a command and its parameters")
    return lines


# A name by RFC 2812, section 1.3, though of up to 200 characters; after blanks a key may follow.
_CHANNEL = re.compile(r"[#&+!][^\s,:\x00-\x1f]{0,199}(?: +[^\s,]+)?")

MECHANISMS = ("EXTERNAL", "ECDSA-NIST256P-CHALLENGE", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The SASL mechanisms, strongest first."""

# NoDecode: an environment variable is split at commas instead of being parsed as JSON.
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)]
Channels = Annotated[Words, AfterValidator(_channels)]
Mechanisms = Annotated[Words, AfterValidator(_mechanisms)]
Fingerprints = Annotated[Words, AfterValidator(_fingerprints)]
Lines = Annotated[tuple[SecretStr, ...], AfterValidator(_lines)]


SHARED = ("command_prefix", "persona", "mark", "admins")
"""The keys that a network has from `[irc]` unless it has its own."""


class NetworkSettings(Settings):
    """One IRC network."""

    table: ClassVar[str] = "irc"

    server: str | None = Field(None, description="Host name or address of the IRC server")
    tls: bool = Field(False, description="Encrypt the connection")
    tls_verify: bool = Field(True, description="Refuse a server whose certificate is not valid")
    port: int = Field(
        default_factory=lambda values: 6697 if values.get("tls") else 6667,
        ge=1,
        le=65535,
        description="Port of the server; by default 6697 with tls, else 6667",
    )
    tls_fingerprints: Fingerprints = Field(
        (), description="SHA-256 of the certificates to trust, in place of authorities and names"
    )
    tls_cert: Path | None = Field(
        None, description="PEM file with a certificate of our own and its key, for SASL EXTERNAL"
    )
    nick: str = Field("Terra", min_length=1, pattern=r"^[^\s!@:#&,*?]+$", description="Our nick")
    username: str = Field(
        "terrarium",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,15}$",
        description="Our user name, the part before the @ of our address",
    )
    realname: str = Field(
        "Terrarium",
        min_length=1,
        max_length=150,
        pattern=r"^[^\x00-\x1f]*$",
        description='Our real name; some networks require it to name the owner: "LLM bot of '
        'alice; .help"',
    )
    channels: Channels = Field(
        ("#terrarium",), description='Channels to join; "#name key" where there is a key'
    )
    password: SecretStr | None = Field(None, description="Password of the server (PASS)")
    sasl: Mechanisms = Field(
        (),
        description="Ways to log in, the preferred first; by default all that the keys below "
        "allow, PLAIN only with TLS; if none succeeds the bot continues without",
    )
    sasl_required: bool = Field(
        False, description="Leave a server that has not logged us in by SASL, and try again later"
    )
    sasl_username: str | None = Field(None, description="Account to log in to")
    sasl_password: SecretStr | None = Field(
        None, description="Its password, for PLAIN and SCRAM-SHA-256 or -512"
    )
    sasl_key: SecretStr | None = Field(
        None, description="PEM file, or its text, with the key for ECDSA-NIST256P-CHALLENGE"
    )
    nickserv_password: SecretStr | None = Field(
        None,
        description="Password to identify to NickServ with, when SASL has not logged us in; it goes"
        " over TLS or to this machine only, and to services only",
    )
    nickserv_mask: str | None = Field(
        None,
        pattern=r"^[^\s!@]+![^\s!@]+@[^\s!@]+$",
        description="Mask of NickServ, as NickServ!*@services.example.org, where the server does"
        " not say in WHOIS that it is a service",
    )
    lines_per_second: float = Field(
        1.0,
        gt=0,
        description="Rate of lines after the first five; most servers disconnect faster clients, "
        "one of your own may allow more",
    )
    join_on_invite: bool = Field(
        True,
        description="Join a channel when an admin invites us there; those of `channels` are joined "
        "whoever invites us",
    )
    rejoin_after: float = Field(
        60.0,
        ge=0,
        description="Seconds to stay away after a kick; after the third one in an hour for good",
    )
    bind: str | None = Field(
        None, description="Address of this machine from which to connect, where it has several"
    )
    socks5: SecretStr | None = Field(
        None,
        description='SOCKS5 proxy to connect through, such as "127.0.0.1:9050" for Tor or '
        '"user:password@proxy.example.org:1080"; it looks up the name of the server',
    )
    umodes: str = Field(
        "",
        pattern=r"^([+-]?[a-zA-Z]+)*$",
        description='User modes to set once connected, such as "+x"',
    )
    perform: Lines = Field(
        (),
        description="Lines to send once connected, before channels are joined, such as "
        '"PRIVMSG Q@CServe.quakenet.org :AUTH name password"',
    )
    command_prefix: str = Field(
        ".",
        min_length=1,
        max_length=8,
        validation_alias=AliasChoices("command_prefix", "irc_command_prefix"),
        description="What a command begins with",
    )
    persona: str | None = Field(
        None,
        min_length=1,
        max_length=8_000,
        description="Who the bot is: the name of a file in DATA/personas, or a text",
    )
    mark: str = Field(
        "",
        max_length=32,
        pattern=r"^[^\x00-\x1f/]*$",
        description="Put before each answer of the model, for networks that require a mark, such "
        'as "🤖 "',
    )
    admins: Words = Field(
        (),
        description="Who may give admin commands: services accounts, or masks such as "
        '"*!*@staff.example.org"; if empty nobody, except on the server bundled with '
        "`terrarium up`: everybody, as they are on this machine",
    )
    channel: dict[str, ChannelKeys] = Field(
        default_factory=dict,
        description='Settings of single channels, by name; "*" is every channel',
    )


class IrcSettings(NetworkSettings):
    """The IRC tendril; its network keys apply if there is no `[irc.networks.NAME]`."""

    plugins: Words = Field((), description="Modules with irc3 plugins to include")
    standby: bool = Field(
        False,
        description="Share networks and log with other IRC tendrils that have this set too: one "
        "is active, the others listen and take over when it is gone",
    )
    channel_groups: tuple[tuple[str, ...], ...] = Field(
        (),
        description='Channels that may see each other\'s logs, as lists of "network/#channel" '
        'or "#channel"',
    )
    line_budget: int = Field(
        4,
        ge=1,
        description="Lines of a reply that are sent to a channel; three times as many of the text"
        " of a job",
    )
    progress_after: float = Field(
        10.0,
        gt=0,
        description="Seconds after which a line says why an answer is slow, on networks without "
        "typing notifications",
    )
    stream_after: float = Field(
        2.0,
        ge=0,
        description="Seconds of writing after which the first line of an answer goes out before "
        "the rest",
    )
    paste_hours: float = Field(
        168.0, gt=0, description="How long the whole of a long answer can be read, in hours"
    )
    admin_tools: bool = Field(
        False,
        description="Let the model kick, ban, and set topics and modes when an admin asks it to "
        "and it is a channel operator",
    )
    ignore: Words = Field((), description="People whose commands are ignored, as in admins")
    bots: Words = Field((), description="Other bots, which are never answered, as in admins")
    relays: Words = Field(
        (), description='Bots that repeat "<nick> words" from elsewhere, as in admins'
    )
    person_per_minute: float = Field(
        60.0, gt=0, description="Commands of one person; a sixth of that at once"
    )
    channel_per_minute: float = Field(
        180.0, gt=0, description="Commands on one channel; a sixth of that at once"
    )
    networks: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Networks by name, each a table with the keys above"
    )

    @field_validator("networks")
    @classmethod
    def _known_keys(cls, networks: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, values in networks.items():
            require_known(values, NetworkSettings.model_fields, f" in {name}")
        # What other tendrils store of their people is under the name of the tendril.
        taken = {*entry_points("terrarium.tendrils").names, "terminal"} - {"irc"}
        for name in networks:
            if name.lower() in taken:
                raise ValueError(
                    f'"{name}" cannot be the name of a network: a tendril with people of its own '
                    f"has that name; choose another, such as [irc.networks.{name}-irc]"
                )
        return networks

    @model_validator(mode="after")
    def _port_of_a_server(self) -> IrcSettings:
        if "port" in self.model_fields_set and not self.server and not self.networks:
            raise ValueError(
                "port has no effect without `server`; the port of the server that `terrarium up` "
                "brings along is [up] irc_port (UP_IRC_PORT)"
            )
        return self


def networks(config: Config) -> dict[str, NetworkSettings]:
    """Return the settings of all configured networks, by name.

    Each has the `SHARED` keys of `[irc]` that it lacks. Without any `[irc.networks.NAME]` the only
    network is `irc`, the table `[irc]` itself. Raises ConfigError when a table is invalid or a
    network has no server.
    """
    settings = config.section(IrcSettings)
    shared = {key: getattr(settings, key) for key in SHARED}
    found: dict[str, NetworkSettings] = {
        name: config.build(
            NetworkSettings,
            f"[irc.networks.{name}]",
            shared | values,
            prefix=f"irc_networks_{name}_",
        )
        for name, values in settings.networks.items()
    }
    for name, network in (found or {"irc": settings}).items():
        if not network.server:
            table = f"irc.networks.{name}" if found else "irc"
            raise ConfigError(
                f'{config.name}: [{table}] has no server; write server = "irc.example.org" there, '
                "set IRC_SERVER, or use `terrarium up`, which brings a server along"
            )
    return found or {"irc": settings}
