"""Services that the parts of the IRC tendril share while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.resources import Resources
from harnesses.core.tendril.services import MediumServices
from harnesses.core.tendril.status import web_address
from harnesses.core.tendril.turns import Turns
from harnesses.irc.channel_settings import (
    AdminOverrides,
    BehaviourResolver,
    ChannelBehaviour,
    load_channel_settings,
)
from harnesses.irc.policy.requests import RequestPolicy
from harnesses.irc.replies.sender import MessageSender
from harnesses.irc.transport.networks import Networks
from llm.web.fetcher import Fetcher
from storage.chat_log.event import Place
from storage.log import ChatLog
from storage.privacy.audit_log import AuditLog
from storage.queues.pastes import Pastes
from terrarium.cancellation import spawn_contained

Spawn = Callable[[Coroutine[Any, Any, None]], object]
Cancel = Callable[[Callable[[str], bool]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class BotServices:
    """The services that commands, questions and unasked speech work with.

    - `resources` are the model and the tables of the tendril, `medium` its log, reminders and other
      services, `turns` its questions; `tools_for` and `reload` are those of `Tendril`.
    - `behaviours` are the effective settings of each channel, `overrides` the other decisions of
      admins; `policy` decides who is answered.
    - `fetcher` fetches pages for their titles.
    - `spawn` starts a background task, whose errors are logged; `cancel` stops the answers in every
      conversation whose name satisfies a predicate.
    - `started` is the event loop's time at startup.
    - `log` is the log that all tendrils share.
    """

    resources: Resources
    turns: Turns
    medium: MediumServices
    tools_for: Callable[[Door], list[object]]
    reload: Callable[[], str]
    networks: Networks
    audit: AuditLog
    overrides: AdminOverrides
    behaviours: BehaviourResolver
    policy: RequestPolicy
    sender: MessageSender
    fetcher: Fetcher
    spawn: Spawn
    cancel: Cancel
    started: float
    log: ChatLog

    @classmethod
    async def restore(
        cls,
        tendril: Tendril,
        networks: Networks,
        fetcher: Fetcher,
        tasks: asyncio.TaskGroup,
        cancel: Cancel,
    ) -> BotServices:
        """Make the services of a tendril whose resources are open, and restore the decisions of
        admins, including channels joined and left; `tasks` will run what `spawn` is given. Raises
        StorageError."""
        clock = asyncio.get_running_loop().time
        database = tendril.database
        behaviours, overrides = await load_channel_settings(database)
        sender = MessageSender(
            tendril.log.chat_log,
            Pastes(database),
            behaviours,
            # Evaluated at each use, as a reload changes them.
            lambda: web_address(tendril.config, networks.servers),
            lambda: timedelta(hours=networks.settings.paste_hours),
        )
        services = cls(
            resources=tendril.resources,
            turns=tendril.turns,
            medium=tendril.medium_services,
            tools_for=tendril.tools_for,
            reload=tendril.reload,
            networks=networks,
            audit=AuditLog(database),
            overrides=overrides,
            behaviours=behaviours,
            policy=RequestPolicy(networks.settings, overrides, clock),
            sender=sender,
            fetcher=fetcher,
            # What one person sends must not end the process for all others.
            spawn=partial(spawn_contained, tasks),
            cancel=cancel,
            started=clock(),
            log=tendril.log.chat_log,
        )
        services.configure()
        # What admins have decided overrides the configured channels.
        for name, network in networks.items():
            for channel, key in overrides.channels(name).items():
                network.part(channel) if key is None else network.join(channel, key)
        return services

    def configure(self) -> None:
        """Apply the current settings of networks and agent to the policy and to all channels."""
        settings, agent = self.networks.settings, self.resources.agent
        self.policy.configure(settings)
        default = ChannelBehaviour(
            command_prefix=settings.command_prefix,
            line_budget=settings.line_budget,
            model=agent.model,
            max_context_messages=agent.max_context_messages,
        )
        for name, network in self.networks.items():
            self.behaviours.configure(name, default, network.settings.channel, network.fold)

    def prefix(self, place: Place) -> str:
        """Return the command prefix in a place."""
        return self.behaviours.resolve(place).command_prefix

    @property
    def web_address(self) -> str | None:
        """The base URL of the web pages for people on these networks; None while they have none."""
        return web_address(self.resources.configuration.config, self.networks.servers)
