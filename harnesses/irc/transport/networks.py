"""The networks of the tendril, created from the configuration and updated with it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping

from harnesses.irc.channel_settings import LiveSettings
from harnesses.irc.session.sts import StsPolicies
from harnesses.irc.settings import IrcSettings, networks
from harnesses.irc.transport.network import Network, name_and_key
from terrarium.config import Config, ConfigError


class Networks(dict[str, Network]):
    """The networks by name; `settings` is the table `[irc]`. Raises ConfigError."""

    def __init__(self, config: Config) -> None:
        self.settings = config.section(IrcSettings)
        make_plugins = None
        if modules := self.settings.plugins:
            from harnesses.irc.transport.irc3_bot import Irc3Bot  # irc3 is only loaded if needed

            make_plugins = functools.partial(Irc3Bot, plugins=modules)
        policies = StsPolicies(config.data / "sts.json")
        self._create = functools.partial(Network, plugins=make_plugins, policies=policies)
        super().__init__(
            (name, self._create(name, settings)) for name, settings in networks(config).items()
        )

    def check(self, config: Config) -> None:
        """Raise ConfigError if `config` cannot be applied without a restart."""
        if set(networks(config)) != set(self) and self.settings.standby:
            raise ConfigError("with standby = true another set of networks needs a restart")

    def configure(self, config: Config) -> tuple[list[Network], list[Network]]:
        """Apply a configuration that `check` has accepted; return the networks that are new, for
        the caller to run, and those that are gone, to quit.

        Channels are joined and left and another nick is taken at once; other connection settings
        take effect with the next connection.
        """
        self.settings = config.section(IrcSettings)
        wanted = networks(config)
        gone = [self.pop(name) for name in set(self) - set(wanted)]
        new = [self._create(name, wanted[name]) for name in wanted if name not in self]
        for name, network in self.items():
            before, settings = network.settings, wanted[name]
            network.settings = settings
            if settings.nick != before.nick:
                network.claim_nick(settings)
            for channel in settings.channels:
                if channel not in before.channels:
                    network.join(*name_and_key(channel))
            for channel in before.channels:
                if channel not in settings.channels:
                    network.part(name_and_key(channel)[0])
        self.update({network.name: network for network in new})
        return new, gone

    async def quit(self, reason: str) -> None:
        """Leave all networks, within two seconds."""
        async with asyncio.TaskGroup() as tasks:
            for network in self.values():
                tasks.create_task(network.quit(reason))


def follow(networks: Mapping[str, Network], live: LiveSettings) -> None:
    """Join and leave channels as admins have decided, whatever the configuration says."""
    for name, network in networks.items():
        for channel, key in live.channels(name).items():
            network.part(channel) if key is None else network.join(channel, key)


def describe_problems(network: Network) -> list[str]:
    """Return for people what is wrong on a network: channels that refuse us, with the time of the
    next attempt, and why we are not connected or not logged in."""
    refusals = [
        f"not in {each.channel}: {each.reason} ({each.numeric}); tried {each.attempts} times,"
        f" again every {max(round(each.retry_in / 60), 1)} min"
        for each in network.session.refusals
    ]
    return [*refusals, *filter(None, [network.problem])]


def describe(network: Network) -> str:
    """Return for people our nick and channels on a network, or that it cannot be used yet, and what
    is wrong there."""
    problems = describe_problems(network)
    if not network.joins_answered:
        said = "; ".join(problems)
        return f"not yet on {network.name}" + (f" ({said})" if said else "")
    here = f"{network.nick} on {' '.join(network.roster.channels)} of {network.name}"
    if network.session.sasl.account:
        here += f", logged in as {network.session.sasl.account}"
    return "; ".join([here, *problems])
