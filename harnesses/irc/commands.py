"""What people can ask of us on IRC: one method a command, its docstring the help."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

from harnesses.irc.network import Network
from harnesses.irc.trigger import ASK, trigger
from storage.chat_log import ChatLog, Query
from storage.event import SPOKEN, Event, Place, Scope

_SHOWN = 3  # lines of a search
_LOOKED_AT = 30  # lines of which the shown ones are the newest that are no commands


@dataclass(frozen=True, slots=True)
class Request:
    """A command as somebody gave it. `stored` will be the log's id of the line."""

    network: Network
    place: Place
    private: bool
    nick: str
    words: str
    scope: Scope
    stored: asyncio.Future[int]


Command = Callable[[Request], Awaitable[str]]


class Desk(Protocol):
    """What commands need of the tendril."""

    log: ChatLog
    prefix: str

    async def ask(self, request: Request) -> str:
        """The model's answer to `request.words`."""

    async def clear(self, place: Place) -> int:
        """Forget the conversation of `place`; how many turns it had."""

    def more(self, place: Place) -> str:
        """The rest of the last long answer in `place`."""


class Commands:
    """The commands by name; each returns the text of the reply, or "" to stay silent."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.known: Mapping[str, Command] = {
            ASK: self.terrarium,
            "ask": self.terrarium,
            "search": self.search,
            "stats": self.stats,
            "who": self.who,
            "clear": self.clear,
            "more": self.more,
            "ping": self.ping,
            "version": self.version,
            "help": self.help,
        }

    async def terrarium(self, request: Request) -> str:
        """terrarium QUESTION: ask me"""
        if not request.words:
            return f"Ask me something: {self._desk.prefix}{ASK} QUESTION"
        return await self._desk.ask(request)

    async def search(self, request: Request) -> str:
        """search WORDS: find lines of this channel"""
        if not request.words:
            return f"Search for what? {self._desk.prefix}search WORDS"
        before = await request.stored
        query = Query(
            scope=request.scope,
            types=SPOKEN,
            own=False,
            before_id=before,
            text=request.words,
            limit=_LOOKED_AT,
        )
        found = [event for event in await self._desk.log.find(query) if not self._asked(event)]
        return "\n".join(map(_quoted, found[-_SHOWN:])) or "Nothing found."

    async def stats(self, request: Request) -> str:
        """stats: how much is said here, and by whom"""
        await request.stored
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
        turns = await self._desk.clear(request.place)
        return f"Forgotten: our conversation of {turns} turn{'' if turns == 1 else 's'}."

    async def more(self, request: Request) -> str:
        """more: the rest of a long answer"""
        return self._desk.more(request.place) or "There is no more."

    async def ping(self, request: Request) -> str:
        """ping: am I there?"""
        return "pong"

    async def version(self, request: Request) -> str:
        """version: what I run"""
        return f"Terrarium {version('terrarium')}"

    async def help(self, request: Request) -> str:
        """help: this"""
        texts = dict.fromkeys(command.__doc__ or "" for command in self.known.values())
        return " | ".join(f"{self._desk.prefix}{text}" for text in texts)

    def _asked(self, event: Event) -> bool:
        """Whether a line is a command, which nobody searches for."""
        found = trigger(event.text, prefix=self._desk.prefix, nick="", private=False)
        return found is not None and found.command in self.known


def unpinged(nick: str) -> str:
    """A nick that does not highlight its owner: a zero-width space after the first letter."""
    return f"{nick[:1]}\u200b{nick[1:]}"


def _quoted(event: Event) -> str:
    return f"[{event.time:%Y-%m-%d %H:%M}] <{unpinged(event.nick)}> {event.text}"
