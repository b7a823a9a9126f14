"""The IRC tendril: logs all that happens on its channels and answers those who ask."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

from harnesses.core.harness import Answer, Harness
from harnesses.irc.commands import Command, Commands, Request
from harnesses.irc.crowd import Crowd, Person
from harnesses.irc.event import IrcEvent
from harnesses.irc.network import Network
from harnesses.irc.record import place_of, recorded, said, scope_of
from harnesses.irc.settings import IrcSettings, networks
from harnesses.irc.sts import StsPolicies
from harnesses.irc.tools import ChannelTools
from harnesses.irc.trigger import trigger
from llm.log_tools import LogTools
from llm.log_view import LogView
from storage.chat_log import ChatLog
from storage.config import Config
from storage.database import Database
from storage.event import Place
from storage.outbox import Outbox, Parcel, outbox_path
from storage.settings import log_path

_POLL = 1.0  # seconds between looks at the outbox and at the networks' state
_UNSAYABLE = {code: None for code in (*range(32), 127) if chr(code) not in "\n\t"}

ENOUGH = "that is enough for now; ask again when I have answered."
PATIENCE = "still at it, one moment."


class IrcTendril(Harness):
    """A body on IRC."""

    name: ClassVar[str] = "irc"

    log: ChatLog

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.settings = config.section(IrcSettings)
        self.prefix = self.settings.command_prefix
        policies = StsPolicies(config.data / "sts.json")
        self.networks: Mapping[str, Network] = {
            name: Network(
                name, settings, self._happened, plugins=self.settings.plugins, policies=policies
            )
            for name, settings in networks(config).items()
        }
        self._commands = Commands(self)
        self._crowd = Crowd()
        self._rest: dict[Place, list[str]] = {}

    def database_path(self) -> Path:
        """The log and the conversations share a file."""
        return log_path(self.config)

    async def serve(self) -> None:
        """Be on all networks; what is answered is answered beside what is logged."""
        async with AsyncExitStack() as stack:
            outbox = await stack.enter_async_context(Database.opened(outbox_path(self.config.data)))
            self.log = await stack.enter_async_context(ChatLog.opened(self.database))
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            for network in self.networks.values():
                self._tasks.create_task(network.run())
            self._tasks.create_task(self._deliver(outbox))
            self._tasks.create_task(self._tell_state())
            try:
                await asyncio.Event().wait()
            finally:
                await self._leave()

    async def ask(self, request: Request) -> str:
        """The model's answer to the words of a request."""
        person = Person(request.place, request.network.fold(request.nick))
        if self._crowd.full(person):
            return ENOUGH if self._crowd.once(person, ENOUGH) else ""
        with self._crowd.waiting(person):
            answering = self._tasks.create_task(self._asked(request))
            answer = await self._patiently(answering, request, person)
        return unaddressed(answer.text, request.nick)

    async def _asked(self, request: Request) -> Answer:
        anchor = await request.stored
        place = request.place
        tools: list[object] = [LogTools(self.log, request.scope, before=anchor)]
        if not request.private:
            tools.append(ChannelTools(request.network, place.channel))
        last = self.agent.max_context_messages
        return await self.turn(
            self._conversation(place),
            who=request.nick,
            text=request.words,
            view=LogView(log=self.log, place=place, anchor=anchor, last=last),
            tools=tools,
            values={"nick": request.network.nick, "channel": place.channel},
        )

    async def clear(self, place: Place) -> int:
        """Forget the conversation of `place`; how many turns it had."""
        return await self.conversations.clear(self._conversation(place))

    def more(self, place: Place) -> str:
        """The rest of the last long answer in `place`."""
        return "\n".join(self._rest.pop(place, ()))

    def _happened(self, event: IrcEvent) -> None:
        """Log an event in order of arrival, and answer it when it asks for that."""
        stored = self.log.append(recorded(event))
        private = event.channel is None
        if event.own or event.batch_type or event.type != "PRIVMSG":
            return
        network = self.networks[event.network]
        asked = trigger(event.text, prefix=self.prefix, nick=network.nick, private=private)
        command = self._commands.known.get(asked.command) if asked else None
        if asked and command:
            place = place_of(event)
            scope = scope_of(place, self.settings.channel_groups)
            request = Request(network, place, private, event.nick, asked.words, scope, stored)
            self._tasks.create_task(self._reply(command, request))

    async def _reply(self, command: Command, request: Request) -> None:
        async def answered() -> Answer:
            return Answer(await command(request))

        await self._tell(request, (await self.safely(answered())).text)

    async def _tell(self, request: Request, text: str) -> None:
        """Say `text` to the person who asked; nothing, when it is empty."""
        if not text:
            return
        addressed = text if request.private else f"{request.nick}: {text}"
        asked = await request.stored
        await self._say(request.network, request.place, addressed, request.private, asked)

    async def _patiently(
        self, answering: asyncio.Task[Answer], request: Request, person: Person
    ) -> Answer:
        """The answer; a person who waits long is told, once, that it is on its way."""
        done, _ = await asyncio.wait({answering}, timeout=self.settings.progress_after)
        if not done and self._crowd.once(person, PATIENCE):
            await self._tell(request, PATIENCE)
        return await answering

    async def _say(
        self, network: Network, place: Place, text: str, private: bool, reply_to: int | None
    ) -> bool:
        """Say `text`, up to the line budget, and log each line as it goes out.

        Returns whether all of it went out.
        """
        lines = network.split(place.channel, text.translate(_UNSAYABLE))
        if len(lines) > self.settings.line_budget:
            shown = max(self.settings.line_budget - 1, 1)
            self._rest[place] = lines[shown:]
            lines = [*lines[:shown], f"({len(lines) - shown} more lines: {self.prefix}more)"]
        for line in lines:
            if not await network.privmsg(place.channel, line):
                return False
            self.log.append(said(place, network.nick, line, private=private, reply_to=reply_to))
        return True

    async def _deliver(self, database: Database) -> None:
        """Say what other tendrils have put in the outbox, once we are where it belongs."""
        outbox = Outbox(database)
        while True:
            for parcel in await outbox.waiting():
                network = self._reachable(parcel)
                if network is None:
                    continue
                place = Place(network.name, parcel.place.channel)
                if await self._say(network, place, parcel.text, private=False, reply_to=None):
                    await outbox.sent(parcel)
            await asyncio.sleep(_POLL)

    def _reachable(self, parcel: Parcel) -> Network | None:
        """The network on whose channel we are; a parcel that names none takes the first."""
        for network in self.networks.values():
            here = {network.fold(channel) for channel in network.channels}
            if parcel.place.network in ("", network.name) and (
                network.fold(parcel.place.channel) in here
            ):
                return network
        return None

    async def _tell_state(self) -> None:
        while True:
            away = [name for name, network in self.networks.items() if not network.joined.is_set()]
            if away:
                self.status.waiting(f"not yet on {', '.join(away)}")
                await self.networks[away[0]].until_joined()
            else:
                self.status.ready(", ".join(map(_whereabouts, self.networks.values())))
                await asyncio.sleep(_POLL)

    async def _leave(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for network in self.networks.values():
                tasks.create_task(network.quit("Terrarium stops"))

    def _conversation(self, place: Place) -> str:
        network = self.networks[place.network]
        return f"{place.network}/{network.fold(place.channel)}"


def unaddressed(text: str, nick: str) -> str:
    """`text` without the `nick:` that a model may begin with, as we say that ourselves."""
    return re.sub(rf"\A(?:{re.escape(nick)}\s*[:,]\s*)+(?=\S)", "", text, flags=re.IGNORECASE)


def _whereabouts(network: Network) -> str:
    return f"{network.nick} on {' '.join(network.channels)} of {network.name}"
