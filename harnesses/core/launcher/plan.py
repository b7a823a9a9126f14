"""The launch plan of `terrarium up`: programs, ports and addresses, computed before any start."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harnesses.core.addresses import table_settings, url
from harnesses.core.errors import UnknownTendril
from harnesses.core.launcher import tendrils
from harnesses.core.launcher.ports import PortRequirement, free_port
from harnesses.core.launcher.settings import UpSettings
from harnesses.core.launcher.supervisor import Program
from harnesses.core.up_file import RunningUp
from terrarium.config import Config, ConfigError

LOOPBACK = "127.0.0.1"
BUILT_IN = "built-in"
"""The value of `[model] path` for the built-in model."""

# -P: with -m alone, Python would import modules from the current directory first.
_PYTHON = (sys.executable, "-P", "-m")
_NO_TENDRILS = ("server", "ircd")
_IRCD = "harnesses.irc.ircd"
"""The module of the embedded IRC server. It is only run: the core must not import a tendril."""


@dataclass(frozen=True, slots=True)
class IrcEndpoint:
    """The IRC server and first channel of the bot, and its command prefix; `embedded` if the server
    is a child process of `terrarium up`."""

    host: str
    port: int
    channel: str
    prefix: str
    embedded: bool


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The programs to keep running, the ports they need, and the addresses they will have.

    `pull` downloads the model named `model` ("" for the built-in one) and must be run to its end
    before the others; it is None if nothing is to be downloaded. `upstream` are the URLs of the
    upstream servers, `server` and `web` those of the agent server and the web tendril.
    """

    programs: tuple[Program, ...]
    ports: tuple[PortRequirement, ...]
    pull: Program | None
    model: str
    upstream: tuple[str, ...]
    server: str
    web: str | None
    endpoint: IrcEndpoint | None

    def with_built_in(self, config: Config) -> LaunchPlan:
        """Return the plan with the built-in model instead, for when the download has failed."""
        programs = tuple(
            replace(each, environment={**each.environment, "MODEL_PATH": BUILT_IN})
            for each in self.programs
        )
        return replace(self, programs=programs, pull=_pull(config, BUILT_IN), model="")

    @property
    def tendrils(self) -> tuple[str, ...]:
        """The names of the tendrils among the programs."""
        return tuple(each.name for each in self.programs if each.name not in _NO_TENDRILS)

    def with_actual_ports(self, running: RunningUp | None) -> LaunchPlan:
        """Return the plan with the actual port of the embedded IRC server, which a running `up` may
        have chosen."""
        if running is None or running.irc_port is None or not self.endpoint:
            return self
        if not self.endpoint.embedded:
            return self
        return replace(self, endpoint=replace(self.endpoint, port=running.irc_port))

    def key_of(self, name: str) -> str | None:
        """Return the API key of a tendril that `with_keys` has set, None if there is none."""
        program = next(each for each in self.programs if each.name == name)
        return program.environment.get("AGENT_API_KEY")

    def with_keys(self, secrets: Mapping[str, str]) -> LaunchPlan:
        """Return the plan in which each tendril has its own key, and none has the admin key.

        A tendril that `secrets` does not name uses the configured key.
        """
        programs = tuple(
            replace(each, environment={**each.environment, **_access(secrets.get(each.name))})
            if each.name in self.tendrils
            else each
            for each in self.programs
        )
        return replace(self, programs=programs)

    @classmethod
    def from_config(cls, config: Config) -> LaunchPlan:
        """Create the plan for `config`; a free port is chosen for each port 0. Raises ConfigError,
        and TendrilError if no port can be chosen."""
        wanted = _wanted_tendrils(config)
        server, model = table_settings(config, "server"), table_settings(config, "model")
        web = table_settings(config, "web") if "web" in wanted else None
        endpoint = _irc(config) if "irc" in wanted else None
        needs = tuple(_needs(server, web, endpoint))
        ports = {need.variable: str(need.port) for need in needs}
        # The IRC server has its port as an argument, the IRC tendril as IRC_PORT.
        environment = {k: v for k, v in ports.items() if k != "UP_IRC_PORT"}
        if endpoint and endpoint.embedded:
            environment |= {"IRC_SERVER": endpoint.host, "IRC_PORT": str(endpoint.port)}
        return cls(
            programs=tuple(_programs(config, wanted, endpoint, environment)),
            ports=needs,
            pull=_pull(config, model["pulled_name"]),
            model=model["pulled_name"] or "",
            upstream=tuple(model["upstream"]),
            server=url(server["host"], int(ports["SERVER_PORT"])),
            web=url(web["host"], int(ports["WEB_PORT"])) if web else None,
            endpoint=endpoint,
        )


def _access(secret: str | None) -> Mapping[str, str]:
    """Return the environment variables for a tendril's access to the agent server."""
    # Empty variables count as unset: they hide the secrets in our own environment from a process
    # that reads messages from strangers.
    others = {"SERVER_ADMIN_KEY": "", "SERVER_KEYS": ""}
    return others | ({"AGENT_API_KEY": secret} if secret else {})


def _wanted_tendrils(config: Config) -> list[str]:
    wanted = list(dict.fromkeys(config.section(UpSettings).tendrils))
    known = tendrils.names()
    for name in wanted:
        if name not in known:
            raise ConfigError(f"{config.name}: [up] tendrils: {UnknownTendril(name, known)}")
    return wanted


def _irc(config: Config) -> IrcEndpoint:
    """Return the server of the first `[irc.networks.NAME]` or of `[irc]`, or else the embedded
    one."""
    values = table_settings(config, "irc")
    networks: Mapping[str, Mapping[str, Any]] = values["networks"]
    network = next(iter(networks.values()), values)
    host = network.get("server")
    port = network.get("port", 6667) if host else config.section(UpSettings).irc_port
    channels = network.get("channels", values["channels"])
    first = channels.split(",")[0] if isinstance(channels, str) else next(iter(channels), "")
    return IrcEndpoint(
        host=host or LOOPBACK,
        port=port or free_port(LOOPBACK),
        channel=first.partition(" ")[0],  # without the channel key
        prefix=values["command_prefix"],
        embedded=not host and not networks,
    )


def _needs(
    server: Mapping[str, Any], web: Mapping[str, Any] | None, endpoint: IrcEndpoint | None
) -> list[PortRequirement]:
    needs = [_need("the agent server", server, "SERVER_PORT", "[server] port")]
    if web:
        needs.append(_need("the web tendril", web, "WEB_PORT", "[web] port"))
    if endpoint and endpoint.embedded:
        needs.append(
            PortRequirement(
                "the embedded IRC server",
                endpoint.host,
                endpoint.port,
                "UP_IRC_PORT",
                "[up] irc_port",
            )
        )
    return needs


def _need(who: str, values: Mapping[str, Any], variable: str, key: str) -> PortRequirement:
    host: str = values["host"]
    return PortRequirement(who, host, values["port"] or free_port(host), variable, key)


def _programs(
    config: Config, wanted: list[str], endpoint: IrcEndpoint | None, environment: Mapping[str, str]
) -> list[Program]:
    programs = [Program("server", command_line(config, "server"), environment)]
    if endpoint and endpoint.embedded:
        where = ("--host", endpoint.host, "--port", str(endpoint.port))
        programs.append(Program("ircd", (*_PYTHON, _IRCD, *where)))
    runs = (Program(name, command_line(config, "run", name), environment) for name in wanted)
    return [*programs, *runs]


def _pull(config: Config, name: str | None) -> Program | None:
    if name is None:
        return None
    return Program("model pull", command_line(config, "model", "pull", *([name] if name else [])))


def command_line(config: Config, *verb: str) -> tuple[str, ...]:
    """Return the command line of a `terrarium` command with the same configuration and data
    folder."""
    file = ("--config", str(config.path)) if config.path else ()
    return (*_PYTHON, "harnesses.cli", *verb, "--data", str(config.data), *file)
