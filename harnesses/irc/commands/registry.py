"""What people can ask of us on IRC: one method a command, its docstring the help."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Protocol

from harnesses.core.permalinks import web_address
from harnesses.irc.commands.admin import AdminCommands, AdminHost
from harnesses.irc.commands.memory import MemoryCommands, MemoryHost, memory_of
from harnesses.irc.commands.privacy import PrivacyCommands, PrivacyHost
from harnesses.irc.commands.reminders import ReminderCommands, ReminderHost
from harnesses.irc.policy.command_request import (
    ASK,
    Command,
    CommandRequest,
    PrivateReply,
    parse_command,
)
from harnesses.irc.replies.sender import sanitize
from harnesses.irc.transport.network import Network
from llm.client.model_catalog import ModelCatalog
from llm.intents.forms import IDENTITY, THERE
from llm.intents.introduction import TOPICS, Introduction
from llm.intents.parser import may_ask_for_fact, read_intent
from llm.tools.semantic_search import SemanticIndex, nearest_events
from storage.chat_log.event import Event, Scope
from storage.log import ChatLog, Query
from storage.search.models import Order, SearchQuery

_SHOWN = 3  # lines of a search
_LOOKED_AT = 30  # lines of which the shown ones are the newest that are no commands
_URGENT = frozenset({"clear", "more", "nolog", "ping", "stop"})
"""Commands about what is being answered just now: in plain words, too, they do not wait for it."""


class CommandHost(AdminHost, PrivacyHost, ReminderHost, MemoryHost, Protocol):
    """What commands need of the tendril."""

    log: ChatLog
    semantic_index: SemanticIndex | None
    catalog: ModelCatalog
    networks: Mapping[str, Network]

    def prefix(self, request: CommandRequest) -> str:
        """What a command begins with where `request` was given."""

    async def ask(self, request: CommandRequest) -> str:
        """Answer `request.words` with the model's help; what else there is to say."""

    async def run_command_in_order(self, request: CommandRequest, command: Command) -> str:
        """Run `command` and reply, after the questions that were asked before `request`."""

    async def clear_conversation(self, request: CommandRequest) -> int:
        """Forget the person's conversation; how many turns it had."""

    async def compact_conversation(self, request: CommandRequest) -> int:
        """Show the model only the newest turns of it; how many are left out."""

    def stop_answer(self, request: CommandRequest, nick: str) -> bool:
        """End what is being answered for `nick`; whether there was anything."""

    async def more(self, request: CommandRequest) -> bool:
        """Say on what the last long answer has left; whether there was anything."""


class Commands:
    """The commands by name; each returns the text of the reply, or "" to stay silent."""

    def __init__(self, host: CommandHost) -> None:
        self._host = host
        self._admin = AdminCommands(host).known
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
            **MemoryCommands(host).known,
            **ReminderCommands(host).known,
            **PrivacyCommands(host).known,
            **{name: _for_admins(command) for name, command in self._admin.items()},
        }

    async def match_intent(self, request: CommandRequest) -> tuple[str, CommandRequest] | None:
        """Return the name of the command that a question really is, with the request for it; None
        when it is a question. Raises StorageError."""
        facts: list[str] = []
        if may_ask_for_fact(request.words) and not request.who.bridged:
            mine = memory_of(self._host.memory, request)
            facts = [fact.key for fact in await mine.facts()]
        intent = read_intent(request.words, facts)
        if intent is None:
            return None
        return intent.command, replace(request, words=intent.words)

    async def terrarium(self, request: CommandRequest) -> str:
        """terrarium QUESTION: ask me"""
        request = replace(request, words=sanitize(request.words).strip())  # colours are no words
        if not request.words:
            return f"Ask me something: {self._host.prefix(request)}{ASK} QUESTION"
        meant = await self.match_intent(request)
        if meant is None:
            return await self._host.ask(request)
        name, given = meant
        if name in _URGENT or (name, given.words) == ("forget", "me"):
            return await self.known[name](given)
        return await self._host.run_command_in_order(given, self.known[name])

    async def search(self, request: CommandRequest) -> str:
        """search WORDS: find lines of this channel"""
        if not request.words:
            return f"Search for what? {self._host.prefix(request)}search WORDS"
        before = await request.pending_event.wait_visible() or None
        within = Query(scope=request.scope, own=False, before_id=before, limit=_LOOKED_AT)
        page = await self._host.log.search(
            SearchQuery(text=request.words, within=within, order=Order.TIME)
        )
        events = [hit.event for hit in reversed(page.hits)]
        found = [event for event in events if not self._is_command(event, request)]
        if found:
            return "\n".join(map(_quote, found[-_SHOWN:]))
        meant = await nearest_events(self._host.semantic_index, request.words, within)
        near = [event for event in meant if not self._is_command(event, request)][:_SHOWN]
        if not near:
            return "Nothing found."
        return "\n".join(["Nobody wrote that; near in meaning:", *map(_quote, near)])

    async def stats(self, request: CommandRequest) -> str:
        """stats: how much is said here, and by whom"""
        await request.pending_event.wait_visible()
        stats = await self._host.log.stats(Query(scope=Scope.from_places(request.place), own=False))
        top = ", ".join(f"{without_highlight(nick)} {count:,}" for nick, count in stats.top)
        since = f" since {stats.first:%Y-%m-%d}" if stats.first else ""
        return f"{stats.lines:,} lines by {stats.people:,} people{since}; most by {top}"

    async def who(self, request: CommandRequest) -> str:
        """who: who is here"""
        members = request.network.members(request.place.channel)
        return f"{len(members)} here: {', '.join(map(without_highlight, members))}"

    async def clear(self, request: CommandRequest) -> str:
        """clear: forget our conversation (the log stays)"""
        turns = await self._host.clear_conversation(request)
        return f"Forgotten: our conversation of {_turns(turns)}."

    async def compact(self, request: CommandRequest) -> str:
        """compact: look at the newest turns of our conversation only"""
        turns = await self._host.compact_conversation(request)
        return f"I look no more at the oldest {_turns(turns)}." if turns else "It is short already."

    async def stop(self, request: CommandRequest) -> str:
        """stop: end the answer that I am working on for you"""
        own = request.who.name
        nick = request.words.split()[0] if request.words else own
        if not request.admin and request.network.fold(nick) != request.network.fold(own):
            return PrivateReply("Only admins may stop what others have asked.")
        stopped = self._host.stop_answer(request, nick)
        return "Stopped." if stopped else PrivateReply("There is nothing to stop.")

    async def more(self, request: CommandRequest) -> str:
        """more: the rest of a long answer"""
        return "" if await self._host.more(request) else "There is no more."

    async def ping(self, request: CommandRequest) -> str:
        """ping: am I there?"""
        return "Yes, I am here." if request.words == THERE else "pong"

    async def version(self, request: CommandRequest) -> str:
        """version: what I run"""
        return f"Terrarium {version('terrarium')}"

    async def about(self, request: CommandRequest) -> str:
        """about [abilities|model]: who I am, what I can do, and by which model"""
        topic = request.words.lower().strip() or IDENTITY
        if topic not in TOPICS:
            return PrivateReply(f"About what? One of: {', '.join(TOPICS)}.")
        host, network = self._host, request.network
        model = host.behaviour(network, request.place).model
        servers = [each.server for each in host.networks.values()]
        introduction = Introduction(
            name=network.nick,
            model=await host.catalog.shown_name(model),
            chooses_tools=await host.catalog.supports_tools(model),
            web_address=web_address(host.config, servers) or "",
            prefix=host.prefix(request),
        )
        return introduction.render(topic)

    async def help(self, request: CommandRequest) -> str:
        """help [COMMAND]: my commands, or what one of them does"""
        prefix = self._host.prefix(request)
        name = request.words.lower().strip().removeprefix(prefix)
        hidden = () if request.admin else self._admin
        if name:
            command = None if name in hidden else self.known.get(name)
            if command is None:
                return PrivateReply(f"There is no command {name[:30]}; {prefix}help lists them.")
            return prefix + " ".join((command.__doc__ or "").split())
        names = [f"{prefix}{each}" for each in self.known if each not in self._admin]
        lines = [f"{' '.join(names)} ({prefix}help COMMAND: what it does)"]
        if request.admin:
            lines.append("for admins: " + " ".join(f"{prefix}{each}" for each in self._admin))
        return "\n".join(lines)

    def _is_command(self, event: Event, request: CommandRequest) -> bool:
        """Whether a line is a command, which nobody searches for."""
        prefix = self._host.prefix(request)
        found = parse_command(event.text, prefix=prefix, nick="", private=False)
        return found is not None and found.command in self.known


def _for_admins(command: Command) -> Command:
    """The command, refused to everybody else."""

    @functools.wraps(command)
    async def admin_only(request: CommandRequest) -> str:
        return await command(request) if request.admin else PrivateReply("Only admins may do that.")

    return admin_only


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def without_highlight(nick: str) -> str:
    """A nick that does not highlight its owner: a zero-width space after the first letter."""
    return f"{nick[:1]}\u200b{nick[1:]}"


def _quote(event: Event) -> str:
    return f"[{event.time:%Y-%m-%d %H:%M}] <{without_highlight(event.nick)}> {event.text}"
