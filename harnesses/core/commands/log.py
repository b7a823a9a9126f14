"""Commands about the log of a room and the people in it: search, statistics, when those who are
away were here, and what they are to be told."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Generic

from harnesses.core.commands.request import Medium, PrivateReply, R, Reply
from harnesses.core.services.reminders import MAX_TEXT
from harnesses.core.text import counted
from llm.messages.message import QuotingText, ShownText
from storage.chat_log import statistics
from storage.chat_log.event import SPOKEN, Event, Identity, is_private
from storage.chat_log.event_table import Query
from storage.passages.passages import LineFilter
from storage.passages.words import asks
from storage.queues.reminders import Owner, Tell, Tells
from storage.search.models import Order, SearchQuery

_SHOWN = 3  # lines of a search
_LOOKED_AT = 30  # lines that are fetched, as commands among them are left out


class LogCommands(Generic[R]):
    """The commands about the log; `known` has the names of those of all kinds."""

    def __init__(self, medium: Medium[R], known: Container[str]) -> None:
        self._medium, self._known = medium, known

    async def search(self, request: R) -> str:
        """search WORDS: find lines of this channel"""
        medium = self._medium
        if not request.words:
            return f"Search for what? {medium.prefix(request.place)}search WORDS"
        # In this order: the line that surely answers, lines with the words, lines that may answer,
        # lines near in meaning. The line of this command has the words as well; hence `before`.
        before = await request.pending_event.wait_visible() or None
        within = Query(scope=request.scope, own=False, before_id=before, limit=_LOOKED_AT)
        log, (nick, *_) = medium.tendril.log, medium.nicks(request)
        line_filter = LineFilter(prefix=medium.prefix(request.place), nicks=(nick,))
        answers = await log.retrieval.answers(
            request.words, replace(within, limit=_SHOWN), line_filter
        )
        if answers.is_sure:
            return self._quote(request, [], [answers.passages[0].event])
        page = await log.chat_log.search(
            SearchQuery(text=request.words, within=within, order=Order.TIME)
        )
        hits = [hit.event for hit in reversed(page.hits)]
        found = [event for event in hits if not self._is_command(event, request)]
        if found and not answers.passages:
            return self._quote(request, [], found[-_SHOWN:])
        if answers.passages:
            return self._quote(request, ["Perhaps:"], [each.event for each in answers.passages])
        meant = await log.retrieval.near(request.words, within)
        events = [hit.event for hit in meant.hits] if meant else []
        near = [event for event in events if not self._is_command(event, request)][:_SHOWN]
        if not near:
            return "Nothing found."
        return self._quote(request, ["Nobody wrote that; near in meaning:"], near)

    async def stats(self, request: R) -> str:
        """stats: how much is said here, and by whom"""
        await request.pending_event.wait_visible()
        medium = self._medium
        stats = await medium.tendril.log.chat_log.read(
            statistics.stats, Query(scope=medium.home(request), own=False)
        )
        top = ", ".join(f"{medium.shown_nick(nick)} {count:,}" for nick, count in stats.top)
        since = f" since {stats.first:%Y-%m-%d}" if stats.first else ""
        lines, people = counted(stats.lines, "line"), counted(stats.people, "person", "people")
        return f"{lines} by {people}{since}" + (f"; most by {top}" if stats.people > 1 else "")

    def _is_command(self, event: Event, request: R) -> bool:
        """Return whether a line is a command or a question to us, which nobody searches for."""
        nicks = self._medium.nicks(request) if asks(event.text) else ()
        found = self._medium.parse(event.text, nicks, request)
        return found is not None and found.command in self._known

    def _quote(self, request: R, lead: Sequence[str], events: Sequence[Event]) -> QuotingText:
        """Return lines for people, with the channels of those that were said elsewhere."""
        here, shown_nick = request.fold(request.place.channel), self._medium.shown_nick
        zone = self._medium.tendril.agent.zone  # as in answers
        lines = (
            f"[{event.time.astimezone(zone):%Y-%m-%d %H:%M}]"
            f"{'' if request.fold(event.channel) == here else f' {event.channel}'}"
            f" <{shown_nick(event.nick)}> {event.text}"
            for event in events
        )
        return QuotingText("\n".join([*lead, *lines]), map(ShownText.from_event, events))


class PeopleCommands(Generic[R]):
    """The commands about people."""

    def __init__(self, medium: Medium[R], waiting: WaitingTells[R]) -> None:
        self._medium, self._waiting = medium, waiting

    async def seen(self, request: R) -> Reply:
        """seen NICK: when NICK last said something here, and what"""
        nick = request.words.partition(" ")[0].removeprefix("@")
        if not nick:
            return PrivateReply(f"Whom? {self._medium.prefix(request.place)}seen NICK")
        fold = request.fold
        if fold(nick) in map(fold, (request.nick, *self._medium.nicks(request))):
            return "You are here." if fold(nick) == fold(request.nick) else "I am here."
        await request.pending_event.wait_visible()  # what was said before is in the log
        is_here = fold(nick) in map(fold, self._medium.members(request))
        last = await self._waiting.last_line(request, nick)
        shown = self._medium.shown_nick(last.nick if last else nick)
        if last is None:
            return (
                f"{shown} is here, and has said nothing." if is_here else f"I do not know {shown}."
            )
        where = "" if fold(last.channel) == fold(request.place.channel) else f" on {last.channel}"
        text = (
            f"{f'{shown} is here. Last said' if is_here else f'{shown} was last seen'}{where} on"
            f" {last.time.astimezone(UTC):%Y-%m-%d at %H:%M} UTC: {last.text}"
        )
        return QuotingText(text, [ShownText.from_event(last)])

    async def tell(self, request: R) -> Reply:
        """tell NICK TEXT: tell NICK that, when they speak the next time"""
        nick, _, text = request.words.partition(" ")
        nick, text = nick.removeprefix("@").rstrip(":,"), text.strip()
        if not text:
            return PrivateReply(
                f"Whom, and what? {self._medium.prefix(request.place)}tell NICK TEXT"
            )
        if len(text) > MAX_TEXT:
            return PrivateReply(f"A message has at most {MAX_TEXT} characters.")
        own = map(request.fold, (request.nick, *self._medium.nicks(request)))
        if request.fold(nick) in own:
            return PrivateReply("Tell it yourself: we are both here.")
        return await self._waiting.add(request, nick, text)


class WaitingTells(Generic[R]):
    """Messages to people who are away.

    `awaited` are the recipients, by network and nick or "~ACCOUNT": the lines of others need no
    look into the database.
    """

    def __init__(self, medium: Medium[R]) -> None:
        self._medium = medium
        self.awaited: set[tuple[str, str]] = set()
        self._telling: set[int] = set()

    async def load(self) -> None:
        """Restore the recipients. Raises StorageError."""
        self.awaited = await self._tells.awaited()

    async def last_line(self, request: R, nick: str, network: str | None = None) -> Event | None:
        """Return the last line of a person, of one `network` or of any, that the author of a
        request may read and the model may see: that of an opt-out may not. Raises StorageError."""
        scope = self._medium.readable_scope(request)
        lines = Query(scope=scope, network=network, nick=nick, types=SPOKEN, own=False, limit=1)
        (found,) = await self._medium.tendril.log.chat_log.for_model(lines)
        return found[0] if found else None

    async def add(self, request: R, nick: str, text: str) -> Reply:
        """Store a message to a person who has been seen; return the confirmation, or why not.
        Raises StorageError."""
        line = await request.pending_event.wait_visible()
        if not line:
            return PrivateReply("I keep no messages for others where nothing is logged.")
        last = await self.last_line(request, nick, request.place.network)
        if last is None:
            return PrivateReply(
                f"I do not know {nick}: I can only tell people who have spoken here."
            )
        private = request.private or is_private(request.place.channel)
        who = Identity.from_event(last)
        # Those cannot be told apart from whoever has their nick, see `deliver`.
        if private and (not (who.account or who.host) or self._medium.is_bridged(request, who)):
            return PrivateReply(
                f"I cannot tell {last.nick} in private, because I only know the nick; say it on"
                f" {last.channel}."
            )
        recipient = Owner(last.network, last.nick, last.user, last.host, last.account)
        tell = Tell(
            recipient,
            request.nick,
            request.place,
            private,
            text,
            self._medium.tendril.clock.now(),
            line,
        )
        if not await self._tells.add(tell):
            return PrivateReply(f"Too many messages already wait for {nick}.")
        await self.load()
        return f"I will tell {self._medium.shown_nick(last.nick)} that when they speak."

    async def deliver(self, request: R) -> None:
        """Tell the author of a line, the `request`, what waits for them. Raises StorageError.

        A nick alone proves nothing: under it one gets, in the room itself, what was asked for in
        that public room. All else is for whoever has the account, or the user name and host, of
        the recipient, and is told to them alone; never to the bridged, who share those of the
        relay. Who has opted out is told nothing.
        """
        who, network, tells = request.who, request.place.network, self._tells
        hidden = self._medium.tendril.log.opt_outs.opt_out_rules.hides_person(network, who)
        for tell in await tells.for_person(network, who.nick, who.account):
            to = tell.recipient
            is_known = not who.bridged and (
                to.account or (to.host and (to.user, to.host) == (who.user, who.host))
            )
            is_there = request.fold(tell.place.channel) == request.fold(request.place.channel)
            if tell.id in self._telling or not (is_known or (is_there and not tell.private)):
                continue
            self._telling.add(tell.id)  # they may speak again meanwhile
            try:
                if not hidden:
                    when = f"{tell.time:%Y-%m-%d %H:%M} UTC"
                    text = f"{tell.sender} wants you to know ({when}): {tell.text}"
                    shown = [ShownText(text, frozenset({tell.question_event_id}))]
                    reply: Reply = QuotingText(text, shown) if is_there else PrivateReply(text)
                    await self._medium.reply(request, reply)
                await tells.remove(tell.id)
            finally:
                self._telling.discard(tell.id)
        await self.load()

    def is_awaited(self, who: Identity, network: str) -> bool:
        """Return whether something waits for a person."""
        names = {who.nick.lower(), f"~{who.account}".lower()}
        return any((network, name) in self.awaited for name in names)

    @property
    def _tells(self) -> Tells:
        return Tells(self._medium.tendril.database)
