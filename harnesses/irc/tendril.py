"""The IRC tendril: logs all that happens on its channels and answers those who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import structlog

from harnesses.core.permalinks import permalink, web_address
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn_result import TurnResult
from harnesses.irc.channel_settings import (
    AdminOverrides,
    BehaviourResolver,
    ChannelBehaviour,
    load_settings,
)
from harnesses.irc.commands.privacy import UNLOGGED
from harnesses.irc.commands.registry import Commands, without_highlight
from harnesses.irc.commands.reminders import ReminderService, create_service
from harnesses.irc.policy.bots_and_relays import KickCounter
from harnesses.irc.policy.command_request import Command, CommandRequest, PrivateReply
from harnesses.irc.policy.log_records import belongs_to, place_of, split_lines, to_log_event
from harnesses.irc.policy.request_policy import Decision, RequestPolicy
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.questions.handler import SLOWLY, QuestionHandler
from harnesses.irc.questions.proactive import ProactiveSpeech
from harnesses.irc.replies.outbox_delivery import deliver
from harnesses.irc.replies.sender import MessageSender, Target
from harnesses.irc.session.sts import StsPolicies
from harnesses.irc.settings import IrcSettings, NetworkSettings, networks
from harnesses.irc.transport.network import Network
from llm.log_questions.answers import Quoting
from llm.tools.semantic_search import SemanticIndex
from storage.chat_log.event import Event, Place
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.privacy.audit_log import AuditLog
from storage.privacy.retention import expire
from storage.queues.channel_settings import ChannelSettings
from storage.queues.outbox import Outbox, outbox_path
from storage.queues.pastes import Pastes
from storage.settings import StorageSettings, log_path
from terrarium.clock import Clock
from terrarium.config import Config, ConfigError

_POLL = 1.0  # seconds between looks at the networks' state

_log = structlog.get_logger()


class IrcTendril(Tendril):
    """A body on IRC."""

    name: ClassVar[str] = "irc"

    log: ChatLog
    sender: MessageSender
    behaviours: BehaviourResolver
    semantic_index: SemanticIndex | None = None
    overrides: AdminOverrides
    audit: AuditLog
    policy: RequestPolicy
    reminder_service: ReminderService

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self.settings = config.section(IrcSettings)
        policies = StsPolicies(config.data / "sts.json")
        self.networks: Mapping[str, Network] = {
            name: Network(
                name, settings, self._on_event, plugins=self.settings.plugins, policies=policies
            )
            for name, settings in networks(config).items()
        }
        self._commands = Commands(self)
        self._questions, self.proactive = QuestionHandler(self), ProactiveSpeech(self)

    def database_path(self) -> Path:
        """The log and the conversations share a file."""
        return log_path(self.config)

    async def serve(self) -> None:
        """Be on all networks; what is answered is answered beside what is logged."""
        async with AsyncExitStack() as stack:
            outbox = await stack.enter_async_context(Database.open(outbox_path(self.config.data)))
            self.log = await stack.enter_async_context(ChatLog.open(self.database))
            await self._prepare()
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._tasks.create_task(deliver(Outbox(outbox), self.networks, self._post))
            self._tasks.create_task(self._tell_state())
            self._tasks.create_task(self.reminder_service.run())
            self._tasks.create_task(self.proactive.run())
            self._tasks.create_task(self._questions.keep_threads_current())
            storage = self.config.section(StorageSettings)
            self._tasks.create_task(run_retention(self.database, self.log, storage))
            if self.semantic_index:
                self._tasks.create_task(self.semantic_index.index())
            for network in self.networks.values():
                self._tasks.create_task(network.run())
            try:
                await asyncio.Event().wait()
            finally:
                await self._leave()

    async def _prepare(self) -> None:
        """Take up what admins have chosen earlier, and count from now."""
        clock = asyncio.get_running_loop().time
        self._started = clock()
        kept = ChannelSettings(self.database)
        self.overrides, self.audit = AdminOverrides(kept), AuditLog(self.database)
        if self.config.section(StorageSettings).semantic:
            self.semantic_index = SemanticIndex(self.client, self.database)
        self.opt_outs = OptOuts(self.database)
        await self.opt_outs.load()
        self.sender = MessageSender(
            self.log, Pastes(self.database), self._link, self._paste_lifetime
        )
        await self.overrides.load()
        self.reminder_service = create_service(self)
        await self.proactive.prepare()
        self._kick_counter = KickCounter(clock)
        self.policy = RequestPolicy(self.settings, self.overrides, clock)
        self.behaviours = BehaviourResolver(await load_settings(kept))
        self._configure(networks(self.config))
        for name, network in self.networks.items():
            for channel, key in self.overrides.channels(name).items():
                network.part(channel) if key is None else network.join(channel, key)

    def _configure(self, found: Mapping[str, NetworkSettings]) -> None:
        for name, network in self.networks.items():
            default = ChannelBehaviour(
                command_prefix=self.settings.command_prefix,
                line_budget=self.settings.line_budget,
                model=self.agent.model,
                max_context_messages=self.agent.max_context_messages,
            )
            self.behaviours.configure(name, default, found[name].channel, network.fold)

    # What commands ask of us.

    async def ask(self, request: CommandRequest) -> str:
        """Answer a question with the model's help; returns what else there is to say."""
        return await self._questions.ask(request)

    async def run_command_in_order(self, request: CommandRequest, command: Command) -> str:
        """Run a command, and reply, after the questions that were asked before `request`."""
        return await self._questions.run_in_order(request, command)

    def prefix(self, request: CommandRequest) -> str:
        """What a command begins with where `request` was given."""
        return self.behaviour(request.network, request.place).command_prefix

    async def clear_conversation(self, request: CommandRequest) -> int:
        """Forget the conversation of whoever asks; how many turns it had."""
        await self.proactive.on_cleared(request)
        return await self.clear(self._questions.conversation(request))

    async def compact_conversation(self, request: CommandRequest) -> int:
        """Show the model only the newest turns of it; how many are left out."""
        return await self.compact(self._questions.conversation(request))

    def stop_answer(self, request: CommandRequest, nick: str) -> bool:
        """End what is being answered for `nick`; whether there was anything."""
        return self.stop(self._questions.conversation(request, nick))

    async def cancel_all(self, request: CommandRequest) -> None:
        """End all that is being answered for whoever asks, anywhere on their network."""
        network, fold = request.network, request.network.fold
        await self._queues.drop(lambda name: belongs_to(name, network.name, fold(request.who.name)))

    async def more(self, request: CommandRequest) -> bool:
        """Say on what the last long answer there has left; whether there was anything."""
        return await self.sender.send_more(self.target(request))

    def reload(self) -> str:
        """Read everything anew; a sentence for people. Raises ConfigError, and then everything is
        as before."""
        return f"{super().reload()} How to connect counts from the next connection on."

    def apply_config(self, config: Config) -> None:
        """Go by another configuration of the same networks. Raises ConfigError."""
        settings, found = config.section(IrcSettings), networks(config)
        if set(found) != set(self.networks):
            raise ConfigError("another set of networks needs a restart")
        before = networks(self.config)
        super().apply_config(config)
        self.settings = settings
        self.policy.configure(settings)
        self._configure(found)
        for name, network in self.networks.items():
            network.configure(found[name])
            _move(network, before[name], found[name])

    async def admin_status(self, request: CommandRequest) -> str:
        """How we are, for admins."""
        lag = await request.network.lag()
        behaviour = self.behaviour(request.network, request.place)
        up = timedelta(seconds=round(asyncio.get_running_loop().time() - self._started))
        return (
            f"up {up}; lag {f'{lag * 1000:.0f} ms' if lag is not None else 'unknown'};"
            f" {self.pending} in the queue; model {behaviour.model};"
            f" {self.accounting.today():,} tokens today;"
            f" {self.proactive.admin_summary(_fold_place(request.network, request.place))}"
            + (f"; broken: {', '.join(broken)}" if (broken := self.prompts.problems) else "")
        )

    # What our other parts ask of us.

    def behaviour(self, network: Network, place: Place) -> ChannelBehaviour:
        """What counts at a place."""
        return self.behaviours.resolve(_fold_place(network, place))

    def target(self, request: CommandRequest) -> Target:
        """Where a reply to `request` goes."""
        target = self.target_at(request.network, request.place, request.private)
        # no answer to what is not is
        logged = target.logged and request.pending_event.event is not None
        return replace(target, nick=request.nick, answers=request.pending_event, logged=logged)

    async def reply_to(self, request: CommandRequest, text: str) -> None:
        """Say `text` to the person who asked; nothing, when it is empty."""
        if text:
            target = self.target(request)
            if isinstance(text, PrivateReply) and not request.who.bridged:
                await self.sender.notice(target, text)
            else:
                await self.sender.say(target, text)

    async def on_setting_changed(self, place: Place, key: str) -> None:
        """An admin has set a key of a folded place."""
        if key == "proactive":
            await self.proactive.unmute(place)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest; it must not raise."""
        self._tasks.create_task(work)

    # What happens.

    def _on_event(self, event: IrcEvent) -> None:
        """Log an event in order of arrival, and answer it when it asks for that."""
        network = self.networks[event.network]
        event, who = self.policy.speaker(network, event)
        behaviour = self.behaviour(network, place_of(event))
        asked = self.policy.parse_trigger(network, event, who, behaviour.command_prefix)
        command = self._commands.known.get(asked.command) if asked else None
        line = to_log_event(event)
        private = asked is not None and asked.command in UNLOGGED
        keeps = behaviour.logging and not private and self.opt_outs.opt_out_rules.keeps(line)
        first, *_ = [self.log.write(each) for each in (split_lines(line) if keeps else [None])]
        self._questions.note_activity(place_of(event))
        self.proactive.on_message(network, event, who, first, asked=asked is not None)
        if event.type == "KICK" and network.fold(event.target) == network.fold(network.nick):
            self._on_kick(network, event.channel or "")
        if asked and command:
            request = self.policy.request(network, event, who, asked.words, first)
            match self.policy.decide(request):
                case Decision.YES:
                    self._tasks.create_task(self._reply(command, request))
                case Decision.TELL:
                    self._tasks.create_task(self.reply_to(request, PrivateReply(SLOWLY)))

    def _on_kick(self, network: Network, channel: str) -> None:
        self.spawn(self.proactive.mute(Place(network.name, network.fold(channel))))
        if self._kick_counter.limit_reached((network.name, network.fold(channel))):
            _log.warning("irc.kicked_for_good", network=network.name, channel=channel)
            network.part(channel)

    async def _reply(self, command: Command, request: CommandRequest) -> None:
        async def execute() -> TurnResult:
            return TurnResult(await command(request))

        await self.reply_to(request, (await self.catch_errors(execute)).text)
        self.policy.note_reply(request)

    async def _post(self, network: Network, place: Place, text: str) -> bool:
        return await self.sender.say(self.target_at(network, place, private=False), text)

    def target_at(self, network: Network, place: Place, private: bool) -> Target:
        """Where something that nobody has asked for goes."""
        behaviour = self.behaviour(network, place)
        return Target(
            network=network,
            place=place,
            private=private,
            nick="",
            answers=None,
            budget=behaviour.line_budget,
            prefix=behaviour.command_prefix,
            logged=behaviour.logging,
        )

    def quoting(self, request: CommandRequest) -> Quoting:
        """How lines of the log are quoted in an answer to `request`."""
        address = self._web_address()

        def link(event: Event) -> str | None:
            return f"{address}{permalink(event)}" if address and not event.private else None

        return Quoting(self.agent.zone, link, without_highlight)

    def _web_address(self) -> str | None:
        servers = [network.server for network in self.networks.values()]
        return web_address(self.config, servers)

    def _link(self, token: str) -> str | None:
        address = self._web_address()
        return f"{address}/paste/{token}" if address else None

    def _paste_lifetime(self) -> timedelta:
        return timedelta(hours=self.settings.paste_hours)

    async def _tell_state(self) -> None:
        while True:
            away = [
                name for name, network in self.networks.items() if not network.all_joined.is_set()
            ]
            if away:
                self.status.waiting(f"not yet on {', '.join(away)}")
                await self.networks[away[0]].until_joined()
            else:
                known = [*map(_whereabouts, self.networks.values()), *self.proactive.summary()]
                self.status.ready(", ".join(known))
                await asyncio.sleep(_POLL)

    async def _leave(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for network in self.networks.values():
                tasks.create_task(network.quit("Terrarium stops"))


def _move(network: Network, before: NetworkSettings, after: NetworkSettings) -> None:
    """Join and leave channels that the configuration has gained and lost."""
    for channel in after.channels:
        if channel not in before.channels:
            name, _, key = channel.partition(" ")
            network.join(name, key.strip())
    for channel in before.channels:
        if channel not in after.channels:
            network.part(channel.partition(" ")[0])


def _fold_place(network: Network, place: Place) -> Place:
    return Place(network.name, network.fold(place.channel))


def _whereabouts(network: Network) -> str:
    return f"{network.nick} on {' '.join(network.channels)} of {network.name}"


_EVERY = 3600.0  # seconds


async def run_retention(database: Database, log: ChatLog, settings: StorageSettings) -> None:
    """Remove what is older than it may be, now and every hour."""
    while True:
        try:
            removed = await expire(database, log, settings, datetime.now(UTC))
        except StorageError as error:  # another hour is soon enough
            _log.error("irc.not_expired", error=str(error))
        else:
            _log.info("irc.expired", events=removed)
        await asyncio.sleep(_EVERY)
