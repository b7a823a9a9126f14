"""Services that the parts of the IRC tendril share while it runs."""

from __future__ import annotations

import asyncio
from functools import partial

from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import web_address
from harnesses.irc.channel_settings import ChannelBehaviour, LiveSettings
from harnesses.irc.requests import RequestPolicy, scope_of
from harnesses.irc.sender import MessageSender
from harnesses.irc.transport.network import Network
from harnesses.irc.transport.networks import Networks, follow
from llm.prompt.log_window import WindowStarts
from llm.web.fetcher import Fetcher
from llm.web.reader import TITLE_LIMITS
from storage.chat_log.event import Identity, Place, Scope
from storage.privacy.audit_log import AuditLog
from storage.queues.pastes import Pastes
from terrarium.cancellation import spawn_contained


class BotServices:
    """The services that commands, questions and unasked speech work with.

    - `resources` are the model and the tables of the `tendril`, `medium` its log, reminders and
      other services, `turns` its questions; `tools_for` and `reload` are those of `Tendril`.
    - `live` are the settings of each channel and the decisions of admins; `policy` decides who is
      answered.
    - `fetcher` fetches pages for their titles.
    - `spawn` starts a background task of `tasks`, whose errors are logged.
    - `started` is the event loop's time at startup.
    - `window_starts` keeps the beginnings of log windows where they are.
    - `log` is the log that all tendrils share.
    """

    def __init__(
        self,
        tendril: Tendril,
        networks: Networks,
        fetcher: Fetcher | None,
        tasks: asyncio.TaskGroup,
        live: LiveSettings,
    ) -> None:
        clock = asyncio.get_running_loop().time
        self.tendril = tendril
        self.resources, self.turns = tendril.resources, tendril.turns
        self.medium, self.log = tendril.medium_services, tendril.log.chat_log
        self.tools_for, self.reload = tendril.tools_for, tendril.reload
        self.networks, self.fetcher = networks, fetcher or Fetcher(limits=TITLE_LIMITS)
        self.live = live
        self.audit = AuditLog(tendril.database)
        self.policy = RequestPolicy(networks, live, clock)
        self.sender = MessageSender(
            tendril.log.chat_log,
            Pastes(tendril.database),
            live,
            # Evaluated at each use, as a reload changes them.
            lambda: networks.settings,
            lambda: self.web_address,
        )
        # What one person sends must not end the process for all others.
        self.spawn = partial(spawn_contained, tasks)
        self.started = clock()
        self.window_starts: WindowStarts = {}
        follow(networks, live)
        self.configure()

    @classmethod
    async def open(
        cls, tendril: Tendril, networks: Networks, fetcher: Fetcher | None, tasks: asyncio.TaskGroup
    ) -> BotServices:
        """Return the services, with what admins have decided. Raises StorageError."""
        return cls(tendril, networks, fetcher, tasks, await LiveSettings.load(tendril.database))

    def configure(self) -> None:
        """Apply the current settings of networks and agent to the policy and to all channels."""
        settings, agent = self.networks.settings, self.resources.configuration.agent
        self.policy.configure(settings)
        for name, network in self.networks.items():
            default = ChannelBehaviour(
                command_prefix=network.settings.command_prefix,
                line_budget=settings.line_budget,
                model=agent.model,
                max_context_messages=agent.max_context_messages,
                persona=network.settings.persona,
            )
            self.live.configure(name, default, network.settings.channel, network.fold)

    def prefix(self, place: Place) -> str:
        """Return the command prefix in a place."""
        return self.live.resolve(place).command_prefix

    def scope_of(self, place: Place) -> Scope:
        """Return the scope of readers in a place: the place itself, and its group of channels."""
        return scope_of(place, self.networks.settings.channel_groups)

    def hides(self, network: Network, who: Identity) -> bool:
        """Return whether somebody wants nothing to be kept of them."""
        return self.medium.log.opt_outs.opt_out_rules.hides_person(network.name, who)

    @property
    def web_address(self) -> str | None:
        """The base URL of the web pages for people on these networks; None while they have none."""
        is_local = all(network.is_embedded for network in self.networks.values())
        return web_address(self.resources.configuration.config, is_local=is_local)
