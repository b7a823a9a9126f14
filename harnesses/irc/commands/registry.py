"""What people can ask of us on IRC: one method a command, its docstring the help."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Protocol

from harnesses.core.permalinks import web_address
from harnesses.irc.commands.admin import AdminCommands, Office
from harnesses.irc.commands.memory import Archive, MemoryCommands, memory_of
from harnesses.irc.commands.privacy import PrivacyCommands, Registry
from harnesses.irc.commands.reminders import Calendar, ReminderCommands
from harnesses.irc.policy.command_request import ASK, Command, Notice, Request, trigger
from harnesses.irc.replies.sender import sayable
from harnesses.irc.transport.network import Network
from llm.client.model_catalog import Models
from llm.intents.forms import IDENTITY, THERE
from llm.intents.introduction import TOPICS, Introduction
from llm.intents.parser import may_ask_for_fact, read_intent
from llm.tools.semantic_search import Meaning, near_to
from storage.chat_log.event import Event, Scope
from storage.log import ChatLog, Query
from storage.search.models import Order, Search

_SHOWN = 3  # lines of a search
_LOOKED_AT = 30  # lines of which the shown ones are the newest that are no commands


class Desk(Office, Registry, Calendar, Archive, Protocol):
    """What commands need of the tendril."""

    log: ChatLog
    meaning: Meaning | None
    models: Models
    networks: Mapping[str, Network]

    def prefix(self, request: Request) -> str:
        """What a command begins with where `request` was given."""

    async def ask(self, request: Request) -> str:
        """Answer `request.words` with the model's help; what else there is to say."""

    async def clear_for(self, request: Request) -> int:
        """Forget the person's conversation; how many turns it had."""

    async def compact_for(self, request: Request) -> int:
        """Show the model only the newest turns of it; how many are left out."""

    def stop_for(self, request: Request, nick: str) -> bool:
        """End what is being answered for `nick`; whether there was anything."""

    async def more(self, request: Request) -> bool:
        """Say on what the last long answer has left; whether there was anything."""


class Commands:
    """The commands by name; each returns the text of the reply, or "" to stay silent."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._admin = AdminCommands(desk).known
        self.known: Mapping[str, Command] = {
            ASK: self.terrarium,
            "ask": self.terrarium,
            "search": self.search,
            "stats": self.stats,
            "who": self.who,
            "clear": self.clear,
            "compact": self.compact,
            "stop": self.stop,
            "more": self.more,
            "ping": self.ping,
            "version": self.version,
            "help": self.help,
            "about": self.about,
            **MemoryCommands(desk).known,
            **ReminderCommands(desk).known,
            **PrivacyCommands(desk).known,
            **{name: _for_admins(command) for name, command in self._admin.items()},
        }

    async def meant(self, request: Request) -> tuple[Command, Request] | None:
        """Return the command that a question really is, with the words that belong to it; None
        when it is a question. Raises StorageError."""
        facts: list[str] = []
        if may_ask_for_fact(request.words) and not request.who.bridged:
            mine = memory_of(self._desk.memory, request)
            facts = [fact.key for fact in await mine.facts()]
        intent = read_intent(request.words, facts)
        if intent is None:
            return None
        return self.known[intent.command], replace(request, words=intent.words)

    async def terrarium(self, request: Request) -> str:
        """terrarium QUESTION: ask me"""
        request = replace(request, words=sayable(request.words).strip())  # colours are no words
        if not request.words:
            return f"Ask me something: {self._desk.prefix(request)}{ASK} QUESTION"
        if meant := await self.meant(request):
            command, given = meant
            return await command(given)
        return await self._desk.ask(request)

    async def search(self, request: Request) -> str:
        """search WORDS: find lines of this channel"""
        if not request.words:
            return f"Search for what? {self._desk.prefix(request)}search WORDS"
        before = await request.line.written() or None
        within = Query(scope=request.scope, own=False, before_id=before, limit=_LOOKED_AT)
        page = await self._desk.log.search(
            Search(text=request.words, within=within, order=Order.TIME)
        )
        events = [hit.event for hit in reversed(page.hits)]
        found = [event for event in events if not self._asked(event, request)]
        if found:
            return "\n".join(map(_quoted, found[-_SHOWN:]))
        meant = await near_to(self._desk.meaning, request.words, within)
        near = [event for event in meant if not self._asked(event, request)][:_SHOWN]
        if not near:
            return "Nothing found."
        return "\n".join(["Nobody wrote that; near in meaning:", *map(_quoted, near)])

    async def stats(self, request: Request) -> str:
        """stats: how much is said here, and by whom"""
        await request.line.written()
        stats = await self._desk.log.stats(Query(scope=Scope.of(request.place), own=False))
        top = ", ".join(f"{unpinged(nick)} {count:,}" for nick, count in stats.top)
        since = f" since {stats.first:%Y-%m-%d}" if stats.first else ""
        return f"{stats.lines:,} lines by {stats.people:,} people{since}; most by {top}"

    async def who(self, request: Request) -> str:
        """who: who is here"""
        members = request.network.members(request.place.channel)
        return f"{len(members)} here: {', '.join(map(unpinged, members))}"

    async def clear(self, request: Request) -> str:
        """clear: forget our conversation (the log stays)"""
        turns = await self._desk.clear_for(request)
        return f"Forgotten: our conversation of {_turns(turns)}."

    async def compact(self, request: Request) -> str:
        """compact: look at the newest turns of our conversation only"""
        turns = await self._desk.compact_for(request)
        return f"I look no more at the oldest {_turns(turns)}." if turns else "It is short already."

    async def stop(self, request: Request) -> str:
        """stop: end the answer that I am working on for you"""
        own = request.who.name
        nick = request.words.split()[0] if request.words else own
        if not request.admin and request.network.fold(nick) != request.network.fold(own):
            return Notice("Only admins may stop what others have asked.")
        stopped = self._desk.stop_for(request, nick)
        return "Stopped." if stopped else Notice("There is nothing to stop.")

    async def more(self, request: Request) -> str:
        """more: the rest of a long answer"""
        return "" if await self._desk.more(request) else "There is no more."

    async def ping(self, request: Request) -> str:
        """ping: am I there?"""
        return "Yes, I am here." if request.words == THERE else "pong"

    async def version(self, request: Request) -> str:
        """version: what I run"""
        return f"Terrarium {version('terrarium')}"

    async def about(self, request: Request) -> str:
        """about [abilities|model]: who I am, what I can do, and by which model"""
        topic = request.words.lower().strip() or IDENTITY
        if topic not in TOPICS:
            return Notice(f"About what? One of: {', '.join(TOPICS)}.")
        desk, network = self._desk, request.network
        model = desk.behaviour(network, request.place).model
        servers = [each.server for each in desk.networks.values()]
        introduction = Introduction(
            name=network.nick,
            model=await desk.models.shown_name(model),
            chooses_tools=await desk.models.chooses_tools(model),
            web_address=web_address(desk.config, servers) or "",
            prefix=desk.prefix(request),
        )
        return introduction.said(topic)

    async def help(self, request: Request) -> str:
        """help [COMMAND]: my commands, or what one of them does"""
        prefix = self._desk.prefix(request)
        name = request.words.lower().strip().removeprefix(prefix)
        hidden = () if request.admin else self._admin
        if name:
            command = None if name in hidden else self.known.get(name)
            if command is None:
                return Notice(f"There is no command {name[:30]}; {prefix}help lists them.")
            return prefix + " ".join((command.__doc__ or "").split())
        names = [f"{prefix}{each}" for each in self.known if each not in self._admin]
        lines = [f"{' '.join(names)} ({prefix}help COMMAND: what it does)"]
        if request.admin:
            lines.append("for admins: " + " ".join(f"{prefix}{each}" for each in self._admin))
        return "\n".join(lines)

    def _asked(self, event: Event, request: Request) -> bool:
        """Whether a line is a command, which nobody searches for."""
        prefix = self._desk.prefix(request)
        found = trigger(event.text, prefix=prefix, nick="", private=False)
        return found is not None and found.command in self.known


def _for_admins(command: Command) -> Command:
    """The command, refused to everybody else."""

    @functools.wraps(command)
    async def guarded(request: Request) -> str:
        return await command(request) if request.admin else Notice("Only admins may do that.")

    return guarded


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def unpinged(nick: str) -> str:
    """A nick that does not highlight its owner: a zero-width space after the first letter."""
    return f"{nick[:1]}\u200b{nick[1:]}"


def _quoted(event: Event) -> str:
    return f"[{event.time:%Y-%m-%d %H:%M}] <{unpinged(event.nick)}> {event.text}"
