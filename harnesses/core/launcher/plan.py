"""The launch plan of `terrarium up`: programs, ports and addresses, computed before any start."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harnesses.core.addresses import RunningUp, listen_on, table_settings, url
from harnesses.core.errors import TendrilError, UnknownTendril
from harnesses.core.launcher import tendrils
from harnesses.core.launcher.settings import UpSettings
from harnesses.core.launcher.supervisor import Program
from terrarium.config import Config, ConfigError

LOOPBACK = "127.0.0.1"
BUILT_IN = "built-in"
"""The value of `[model] path` for the built-in model."""

# -P: with -m alone, Python would import modules from the current directory first.
_PYTHON = (sys.executable, "-P", "-m")
_IRC_PORT = ("UP_IRC_PORT", "[up] irc_port")
_NO_TENDRILS = ("server", "ircd")
_IRCD = "harnesses.irc.ircd"
"""The module of the embedded IRC server. It is only run: the core must not import a tendril."""


@dataclass(frozen=True, slots=True)
class PortRequirement:
    """A port that `who` will listen on, and the environment variable and setting that change it."""

    who: str
    host: str
    port: int
    variable: str
    key: str

    def check(self) -> None:
        """Check that the port is free by listening on it for a moment. Raises PortTaken, and
        TendrilError for an unusable address."""
        try:
            listen_on(self.host, self.port, self.variable, self.key).close()
        except TendrilError as error:
            error.add_note(f"{self.who} needs it")
            raise


@dataclass(frozen=True, slots=True)
class IrcEndpoint:
    """The IRC server and first channel of the bot, and its command prefix; `tls` if it speaks that,
    `embedded` if the server is a child process of `terrarium up`."""

    host: str
    port: int
    channel: str
    prefix: str
    tls: bool
    embedded: bool

    @property
    def irssi(self) -> tuple[str, ...]:
        """The lines to type to get into the channel with irssi, which has no option for TLS."""
        join = f"/join {self.channel}"
        if self.tls:
            return "irssi", f"/connect -tls {self.host} {self.port}", join
        port = "" if self.port == 6667 else f" -p {self.port}"
        return f"irssi -c {self.host}{port}", join

    @classmethod
    def from_config(cls, config: Config) -> IrcEndpoint:
        """Return the server of the first `[irc.networks.NAME]` or of `[irc]`, or else the embedded
        one. Raises ConfigError, and TendrilError if no port can be chosen."""
        values = table_settings(config, "irc")
        networks: Mapping[str, Mapping[str, Any]] = values["networks"]
        network = next(iter(networks.values()), values)
        host = network.get("server")
        port = network.get("port", 6667) if host else config.section(UpSettings).irc_port
        channels = network.get("channels", values["channels"])
        first = channels.split(",")[0] if isinstance(channels, str) else next(iter(channels), "")
        return cls(
            host=host or LOOPBACK,
            port=port or _free_port(LOOPBACK, *_IRC_PORT),
            channel=first.partition(" ")[0],  # without the channel key
            prefix=values["command_prefix"],
            tls=bool(host and network.get("tls")),
            embedded=not host and not networks,
        )


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The programs to keep running, the ports they need, and the addresses they will have.

    `pull` downloads the built-in model and must be run to its end before the others, `later` the
    model named `model`, for which the built-in one stands in; they are None, and `model` is "", if
    nothing is to be downloaded. `upstream` are the URLs of the
    upstream servers, `server` and `web` those of the agent server and the web tendril. `setup` is a
    new token for the page of the web tendril that writes the first configuration file, "" if there
    is a file.
    """

    programs: tuple[Program, ...]
    ports: tuple[PortRequirement, ...]
    pull: Program | None
    later: Program | None
    model: str
    upstream: tuple[str, ...]
    server: str
    web: str | None
    endpoint: IrcEndpoint | None
    setup: str

    @classmethod
    def from_config(cls, config: Config) -> LaunchPlan:
        """Create the plan for `config`; a free port is chosen for each port 0. Raises ConfigError,
        and TendrilError if no port can be chosen."""
        wanted = list(dict.fromkeys(config.section(UpSettings).tendrils))
        known = tendrils.names()
        for name in wanted:
            if name not in known:
                raise ConfigError(f"{config.name}: [up] tendrils: {UnknownTendril(name, known)}")
        server, model = table_settings(config, "server"), table_settings(config, "model")
        ports = [_port("the agent server", server, "SERVER_PORT", "[server] port")]
        environment = {"SERVER_PORT": str(ports[0].port)}
        web = None
        if "web" in wanted:
            values = table_settings(config, "web")
            ports.append(_port("the web tendril", values, "WEB_PORT", "[web] port"))
            environment["WEB_PORT"] = str(ports[-1].port)
            web = url(ports[-1].host, ports[-1].port)
        name, file = model["pulled_name"], model["file"]
        later = name if name and not file.is_file() else ""
        verb = ("server", "--stand-in") if later else ("server",)
        programs = [Program("server", command_line(config, *verb), environment, serves=True)]
        endpoint = IrcEndpoint.from_config(config) if "irc" in wanted else None
        if endpoint and endpoint.embedded:
            host, port = endpoint.host, endpoint.port
            ports.append(PortRequirement("the embedded IRC server", host, port, *_IRC_PORT))
            # The IRC server has its port as an argument, the IRC tendril as IRC_PORT.
            environment |= {"IRC_SERVER": host, "IRC_PORT": str(port)}
            where = ("--host", host, "--port", str(port))
            programs.append(Program("ircd", (*_PYTHON, _IRCD, *where), serves=True))
        programs += [
            Program(name, command_line(config, "run", name), environment) for name in wanted
        ]
        return cls(
            programs=tuple(programs),
            ports=tuple(ports),
            pull=_pull(config) if name == "" or later else None,
            later=_pull(config, later) if later else None,
            model=later,
            upstream=tuple(model["upstream"]),
            server=url(ports[0].host, ports[0].port),
            web=web,
            endpoint=endpoint,
            setup=secrets.token_urlsafe(18) if web and config.path is None else "",
        )

    @property
    def tendrils(self) -> tuple[str, ...]:
        """The names of the tendrils among the programs."""
        return tuple(each.name for each in self.programs if each.name not in _NO_TENDRILS)

    def with_actual_ports(self, running: RunningUp | None) -> LaunchPlan:
        """Return the plan with the actual port of the embedded IRC server, which a running `up` may
        have chosen."""
        if not (running and running.irc_port and self.endpoint and self.endpoint.embedded):
            return self
        return replace(self, endpoint=replace(self.endpoint, port=running.irc_port))

    def with_keys(self, secrets: Mapping[str, str]) -> LaunchPlan:
        """Return the plan in which each tendril has its own key, and none has the admin key.

        A tendril that `secrets` does not name uses the configured key.
        """
        # Empty variables count as unset: they hide the secrets in our own environment from a
        # process that reads messages from strangers.
        hidden = {"SERVER_ADMIN_KEY": "", "SERVER_KEYS": ""}
        own = {name: {"AGENT_API_KEY": secret} for name, secret in secrets.items()}
        programs = tuple(
            each.having(hidden | own.get(each.name, {})) if each.name in self.tendrils else each
            for each in self.programs
        )
        return replace(self, programs=programs)


def command_line(config: Config, *verb: str) -> tuple[str, ...]:
    """Return the command line of a `terrarium` command with the same configuration and data."""
    file = ("--config", str(config.path)) if config.path else ()
    return (*_PYTHON, "harnesses.cli", *verb, "--data", str(config.data), *file)


def _pull(config: Config, *name: str) -> Program:
    return Program("model pull", command_line(config, "model", "pull", *name))


def _port(who: str, values: Mapping[str, Any], variable: str, key: str) -> PortRequirement:
    host: str = values["host"]
    port = values["port"] or _free_port(host, variable, key)
    return PortRequirement(who, host, port, variable, key)


def _free_port(host: str, variable: str, key: str) -> int:
    with listen_on(host, 0, variable, key) as probe:
        return int(probe.getsockname()[1])
