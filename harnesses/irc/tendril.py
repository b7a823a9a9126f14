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
from harnesses.core.tendril.answer import Answer
from harnesses.core.tendril.harness import Harness
from harnesses.irc.channel_settings import Behaviour, Behaviours, Choices, stored
from harnesses.irc.commands.privacy import UNLOGGED
from harnesses.irc.commands.registry import Commands, unpinged
from harnesses.irc.commands.reminders import Reminding, reminding_of
from harnesses.irc.policy.bots_and_relays import Kicks
from harnesses.irc.policy.command_request import Command, Notice, Request
from harnesses.irc.policy.log_records import is_of, lines_of, place_of, recorded
from harnesses.irc.policy.request_policy import Hearing, May
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.questions.handler import SLOWLY, Asking
from harnesses.irc.questions.proactive import Proactive
from harnesses.irc.replies.outbox_delivery import deliver
from harnesses.irc.replies.sender import Speech, Target
from harnesses.irc.session.sts import StsPolicies
from harnesses.irc.settings import IrcSettings, NetworkSettings, networks
from harnesses.irc.transport.network import Network
from llm.log_questions.answers import Quoting
from llm.tools.semantic_search import Meaning
from storage.chat_log.event import Event, Place
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.privacy.audit_log import Audit
from storage.privacy.retention import expire
from storage.queues.channel_settings import ChannelSettings
from storage.queues.outbox import Outbox, outbox_path
from storage.queues.pastes import Pastes
from storage.settings import StorageSettings, log_path
from terrarium.clock import Clock
from terrarium.config import Config, ConfigError

_POLL = 1.0  # seconds between looks at the networks' state

_log = structlog.get_logger()


class IrcTendril(Harness):
    """A body on IRC."""

    name: ClassVar[str] = "irc"

    log: ChatLog
    speech: Speech
    behaviours: Behaviours
    meaning: Meaning | None = None
    choices: Choices
    audit: Audit
    hearing: Hearing
    reminding: Reminding

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self.settings = config.section(IrcSettings)
        policies = StsPolicies(config.data / "sts.json")
        self.networks: Mapping[str, Network] = {
            name: Network(
                name, settings, self._happened, plugins=self.settings.plugins, policies=policies
            )
            for name, settings in networks(config).items()
        }
        self._commands = Commands(self)
        self._asking, self.proactive = Asking(self), Proactive(self)

    def database_path(self) -> Path:
        """The log and the conversations share a file."""
        return log_path(self.config)

    async def serve(self) -> None:
        """Be on all networks; what is answered is answered beside what is logged."""
        async with AsyncExitStack() as stack:
            outbox = await stack.enter_async_context(Database.opened(outbox_path(self.config.data)))
            self.log = await stack.enter_async_context(ChatLog.opened(self.database))
            await self._prepare()
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._tasks.create_task(deliver(Outbox(outbox), self.networks, self._post))
            self._tasks.create_task(self._tell_state())
            self._tasks.create_task(self.reminding.run())
            self._tasks.create_task(self.proactive.run())
            self._tasks.create_task(self._asking.follow())
            storage = self.config.section(StorageSettings)
            self._tasks.create_task(sweep(self.database, self.log, storage))
            if self.meaning:
                self._tasks.create_task(self.meaning.index())
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
        self.choices, self.audit = Choices(kept), Audit(self.database)
        if self.config.section(StorageSettings).semantic:
            self.meaning = Meaning(self.client, self.database)
        self.opt_outs = OptOuts(self.database)
        await self.opt_outs.load()
        self.speech = Speech(self.log, Pastes(self.database), self._link, self._paste_lifetime)
        await self.choices.load()
        self.reminding = reminding_of(self)
        await self.proactive.prepare()
        self._kicks = Kicks(clock)
        self.hearing = Hearing(self.settings, self.choices, clock)
        self.behaviours = Behaviours(await stored(kept))
        self._configure(networks(self.config))
        for name, network in self.networks.items():
            for channel, key in self.choices.channels(name).items():
                network.part(channel) if key is None else network.join(channel, key)

    def _configure(self, found: Mapping[str, NetworkSettings]) -> None:
        for name, network in self.networks.items():
            default = Behaviour(
                command_prefix=self.settings.command_prefix,
                line_budget=self.settings.line_budget,
                model=self.agent.model,
                max_context_messages=self.agent.max_context_messages,
            )
            self.behaviours.configure(name, default, found[name].channel, network.fold)

    # What commands ask of us.

    async def ask(self, request: Request) -> str:
        """Answer a question with the model's help; returns what else there is to say."""
        return await self._asking.ask(request)

    def prefix(self, request: Request) -> str:
        """What a command begins with where `request` was given."""
        return self.behaviour(request.network, request.place).command_prefix

    async def clear_for(self, request: Request) -> int:
        """Forget the conversation of whoever asks; how many turns it had."""
        await self.proactive.cleared(request)
        return await self.clear(self._asking.conversation(request))

    async def compact_for(self, request: Request) -> int:
        """Show the model only the newest turns of it; how many are left out."""
        return await self.compact(self._asking.conversation(request))

    def stop_for(self, request: Request, nick: str) -> bool:
        """End what is being answered for `nick`; whether there was anything."""
        return self.stop(self._asking.conversation(request, nick))

    async def drop_for(self, request: Request) -> None:
        """End all that is being answered for whoever asks, anywhere on their network."""
        network, fold = request.network, request.network.fold
        await self._lanes.drop(lambda name: is_of(name, network.name, fold(request.who.name)))

    async def more(self, request: Request) -> bool:
        """Say on what the last long answer there has left; whether there was anything."""
        return await self.speech.more(self.target(request))

    def reload(self) -> str:
        """Read everything anew; a sentence for people. Raises ConfigError, and then everything is
        as before."""
        return f"{super().reload()} How to connect counts from the next connection on."

    def adopt(self, config: Config) -> None:
        """Go by another configuration of the same networks. Raises ConfigError."""
        settings, found = config.section(IrcSettings), networks(config)
        if set(found) != set(self.networks):
            raise ConfigError("another set of networks needs a restart")
        before = networks(self.config)
        super().adopt(config)
        self.settings = settings
        self.hearing.configure(settings)
        self._configure(found)
        for name, network in self.networks.items():
            network.configure(found[name])
            _move(network, before[name], found[name])

    async def state(self, request: Request) -> str:
        """How we are, for admins."""
        lag = await request.network.lag()
        behaviour = self.behaviour(request.network, request.place)
        up = timedelta(seconds=round(asyncio.get_running_loop().time() - self._started))
        return (
            f"up {up}; lag {f'{lag * 1000:.0f} ms' if lag is not None else 'unknown'};"
            f" {self.questions} in the queue; model {behaviour.model};"
            f" {self.accounts.today():,} tokens today;"
            f" {self.proactive.state(_folded(request.network, request.place))}"
            + (f"; broken: {', '.join(broken)}" if (broken := self.prompts.problems) else "")
        )

    # What our other parts ask of us.

    def behaviour(self, network: Network, place: Place) -> Behaviour:
        """What counts at a place."""
        return self.behaviours.of(_folded(network, place))

    def target(self, request: Request) -> Target:
        """Where a reply to `request` goes."""
        target = self.target_at(request.network, request.place, request.private)
        logged = target.logged and request.line.event is not None  # no answer to what is not is
        return replace(target, nick=request.nick, answers=request.line, logged=logged)

    async def tell(self, request: Request, text: str) -> None:
        """Say `text` to the person who asked; nothing, when it is empty."""
        if text:
            target = self.target(request)
            if isinstance(text, Notice) and not request.who.bridged:
                await self.speech.notice(target, text)
            else:
                await self.speech.say(target, text)

    async def was_set(self, place: Place, key: str) -> None:
        """An admin has set a key of a folded place."""
        if key == "proactive":
            await self.proactive.lift(place)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest; it must not raise."""
        self._tasks.create_task(work)

    # What happens.

    def _happened(self, event: IrcEvent) -> None:
        """Log an event in order of arrival, and answer it when it asks for that."""
        network = self.networks[event.network]
        event, who = self.hearing.speaker(network, event)
        behaviour = self.behaviour(network, place_of(event))
        asked = self.hearing.asked(network, event, who, behaviour.command_prefix)
        command = self._commands.known.get(asked.command) if asked else None
        line = recorded(event)
        private = asked is not None and asked.command in UNLOGGED
        keeps = behaviour.logging and not private and self.opt_outs.rules.keeps(line)
        first, *_ = [self.log.write(each) for each in (lines_of(line) if keeps else [None])]
        self._asking.heard(place_of(event))
        self.proactive.heard(network, event, who, first, asked=asked is not None)
        if event.type == "KICK" and network.fold(event.target) == network.fold(network.nick):
            self._kicked(network, event.channel or "")
        if asked and command:
            request = self.hearing.request(network, event, who, asked.words, first)
            match self.hearing.may(request):
                case May.YES:
                    self._tasks.create_task(self._reply(command, request))
                case May.TELL:
                    self._tasks.create_task(self.tell(request, Notice(SLOWLY)))

    def _kicked(self, network: Network, channel: str) -> None:
        self.spawn(self.proactive.hush(Place(network.name, network.fold(channel))))
        if self._kicks.enough((network.name, network.fold(channel))):
            _log.warning("irc.kicked_for_good", network=network.name, channel=channel)
            network.part(channel)

    async def _reply(self, command: Command, request: Request) -> None:
        async def answered() -> Answer:
            return Answer(await command(request))

        await self.tell(request, (await self.safely(answered)).text)
        self.hearing.answered(request)

    async def _post(self, network: Network, place: Place, text: str) -> bool:
        return await self.speech.say(self.target_at(network, place, private=False), text)

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

    def quoting(self, request: Request) -> Quoting:
        """How lines of the log are quoted in an answer to `request`."""
        address = self._web_address()

        def link(event: Event) -> str | None:
            return f"{address}{permalink(event)}" if address and not event.private else None

        return Quoting(self.agent.zone, link, unpinged)

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
            away = [name for name, network in self.networks.items() if not network.joined.is_set()]
            if away:
                self.status.waiting(f"not yet on {', '.join(away)}")
                await self.networks[away[0]].until_joined()
            else:
                known = [*map(_whereabouts, self.networks.values()), *self.proactive.brief()]
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


def _folded(network: Network, place: Place) -> Place:
    return Place(network.name, network.fold(place.channel))


def _whereabouts(network: Network) -> str:
    return f"{network.nick} on {' '.join(network.channels)} of {network.name}"


_EVERY = 3600.0  # seconds


async def sweep(database: Database, log: ChatLog, settings: StorageSettings) -> None:
    """Remove what is older than it may be, now and every hour."""
    while True:
        try:
            removed = await expire(database, log, settings, datetime.now(UTC))
        except StorageError as error:  # another hour is soon enough
            _log.error("irc.not_expired", error=str(error))
        else:
            _log.info("irc.expired", events=removed)
        await asyncio.sleep(_EVERY)
