"""The base class of tendrils for media on which people talk."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import structlog

from harnesses.core.commands.request import (
    RATE_LIMITED,
    TOO_MANY,
    UNLOGGED,
    CommandRequest,
    ConcurrencyLimit,
    FindCommand,
    Medium,
    PrivateReply,
    Reply,
    TokenBuckets,
    parse_command,
)
from harnesses.core.commands.table import COMMON_NAMES, CommandTable, names_of
from harnesses.core.services.reminders import RunOutcome, previous_due
from harnesses.core.services.shared_log import LoggedLine, conversation_name, is_public
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import NO_REPLY, TurnRequest, TurnResult
from harnesses.core.text import strip_control_chars
from llm.answerers.answerers import RoomView
from llm.messages.message import Image, QuotingText, UnusableImage
from llm.tools.consent import Rights
from storage.chat_log.event import EventType, Identity, PendingEvent, Place, Scope
from storage.chat_log.event_table import id_at
from storage.chat_log.opt_outs import person_of
from storage.queues.reminders import Reminder

ADMIN = "admin"
"""The right of those who may also list and cancel the reminders of others."""

_log = structlog.get_logger()

_EDIT_INTERVAL = 1.0  # seconds: networks limit how often a message may be edited
_TYPING_AFTER, _TYPING_INTERVAL = 1.0, 3.0  # seconds: clients show it for a few


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkRequest(CommandRequest):
    """A command on a medium without further rules of its own.

    `turn` is the turn of the line as a question, which delivers its answer by itself, and is taken
    by `take`; `send` delivers a reply to the author. `members` are the nicks of those in the place,
    `home` is the part of the log that the author calls "here"; the place itself may be none of it.
    """

    turn: TurnRequest
    take: Callable[[TurnRequest], Awaitable[object]]
    send: Callable[[Reply], Awaitable[None]]
    members: Sequence[str] = ()
    home: Scope

    @property
    def room(self) -> str:
        """The key of the place in memory."""
        return self.turn.room or self.turn.conversation

    @property
    def conversation(self) -> str:
        """The name of the author's conversation in the place."""
        return self.turn.conversation


class ChatMedium(Medium[TalkRequest]):
    """A medium whose requests have all that their commands need; the `talker` has our nick."""

    def __init__(self, tendril: Tendril, talker: DirectChat | ChatTendril) -> None:
        self._tendril, self._talker = tendril, talker
        self._open = ConcurrencyLimit()

    @property
    def tendril(self) -> Tendril:
        """The tendril."""
        return self._tendril

    async def ask(self, request: TalkRequest, command: FindCommand) -> Reply:
        """Run the turn of a question, or the `command` that it asks for in plain words; return a
        refusal or ""."""
        person = request.place.network, request.person
        if self._open.is_full(person):
            return PrivateReply(TOO_MANY)
        with self._open.hold(person):
            model = request.model or request.turn.model
            turn = replace(request.turn, text=request.words, command=command, model=model)
            await request.take(turn)
        return ""

    async def reply(self, request: TalkRequest, reply: Reply) -> None:
        """Deliver a reply to the author of a request, unless it is empty."""
        if reply:
            await request.send(reply)

    def prefix(self, place: Place) -> str:
        """Return what commands begin with."""
        return self._talker.prefix

    def nicks(self, request: TalkRequest) -> Sequence[str]:
        """Return our nick."""
        return (self._talker.nick,)

    def members(self, request: TalkRequest) -> Sequence[str]:
        """Return the nicks of those in the place of a request."""
        return request.members

    def persona(self, request: TalkRequest) -> str | None:
        """Return the name of the persona of the turn, None for that of the tendril."""
        return request.turn.persona

    def keeps(self, request: TalkRequest) -> bool:
        """Return whether anything of a request may be remembered."""
        return request.turn.keeps

    def is_logged(self, request: TalkRequest) -> bool:
        """Return whether the place of a request is in the log, unless its author objects."""
        return request.place in (request.home.places or ())

    def home(self, request: TalkRequest) -> Scope:
        """Return the part of the log that an author calls "here"."""
        return request.home


class DirectChat:
    """Conversations of single people with a tendril, outside the log: in a browser or a terminal.

    Their commands are those of every medium, and those that the tendril marks with `@command`.
    """

    nick, prefix = "Terra", "."

    def __init__(self, tendril: Tendril) -> None:
        self.tendril, self._medium = tendril, ChatMedium(tendril, self)
        self.commands = CommandTable(self._medium, owner=tendril)

    async def answer(
        self, turn: TurnRequest, who: Identity, scope: Scope, rights: Rights = frozenset
    ) -> TurnResult:
        """Run the command that the text of a turn is, or else the turn; return the reply.

        `who` is told from others by the account; `scope` is what of the log they may read.
        """
        results: list[TurnResult] = []

        async def send(reply: Reply) -> None:
            text = reply.text if isinstance(reply, PrivateReply) else reply
            results.append(TurnResult(text))

        async def deliver(result: TurnResult) -> bool:
            results.append(result)
            return True

        request = TalkRequest(
            place=Place(self.tendril.name, who.room(person_of)),
            private=True,
            who=who,
            words="",
            scope=scope,
            pending_event=PendingEvent.stored(0),
            admin=ADMIN in rights(),
            person=turn.person or turn.who,
            rights=rights,
            turn=replace(turn, rights=rights, deliver=deliver),
            take=self.tendril.turn,
            send=send,
            home=scope,
        )
        asked = parse_command(
            turn.text, prefix=self.prefix, nicks=self._medium.nicks(request), private=True
        )
        if asked:
            found = self.commands.find(asked, replace(request, words=asked.words))
            if found:
                await self._medium.run(*found)
        return results[-1] if results else NO_REPLY


class LineReplies:
    """The replies of a tendril to a line: sent to its place and logged; an answer that the medium
    can edit grows there while the model writes it."""

    def __init__(self, tendril: ChatTendril, line: LoggedLine) -> None:
        self._tendril, self._line = tendril, line
        self._text = self._message = ""
        self._is_waiting = self._is_over = False
        self._sending = asyncio.Lock()

    async def take(self, turn: TurnRequest) -> None:
        """Take the turn of the line as a question, with its image, while typing is shown."""
        tendril, place = self._tendril, self._line.place

        async def show_typing() -> None:
            await asyncio.sleep(_TYPING_AFTER)
            try:
                while True:
                    await tendril.typing(place, True)
                    await asyncio.sleep(_TYPING_INTERVAL)
            finally:
                await tendril.typing(place, False)

        typing = asyncio.create_task(show_typing())
        try:
            if image := await tendril.image(self._line):
                turn = replace(turn, image=Image.from_bytes(image))
            await tendril.turn(turn)
        except UnusableImage as error:
            await self.send(PrivateReply(f"I cannot look at that: {error}."))
        finally:
            self._is_over = True
            typing.cancel()
            (failure,) = await asyncio.gather(typing, return_exceptions=True)
            if isinstance(failure, Exception):  # no reason to fail the answer
                _log.warning("typing.failed", reason=repr(failure))

    async def on_text(self, piece: str) -> None:
        """Append a piece of what the model writes, all of which is shown a little later; an empty
        piece discards those before it."""
        self._text = f"{self._text}{piece}" if piece else ""
        if not self._is_waiting:
            self._is_waiting = True
            self._tendril.spawn(self.show())

    async def show(self) -> None:
        """Show what the model has written after the time between two edits, if it still writes."""
        await asyncio.sleep(_EDIT_INTERVAL)
        self._is_waiting = False
        async with self._sending:
            if self._text.strip() and not self._is_over:
                await self._put(self._text)

    async def deliver(self, result: TurnResult) -> bool:
        """Deliver the whole answer; return True if the person has it."""
        await self._line.pending.wait_visible()  # whoever reads it must find its question
        async with self._sending:
            self._is_over = True
            is_there = not result.text or await self._put(result.text)
        if result.text and is_there:
            self._record(result.text)
        return is_there

    async def send(self, reply: Reply) -> None:
        """Deliver a reply to the author of the line; one for them alone is logged only where nobody
        else could read it."""
        tendril, line = self._tendril, self._line
        if isinstance(reply, PrivateReply):
            is_there = await tendril.send(line.place, reply.text, line, True)
            if is_there and not is_public(line.place):
                self._record(reply.text)
        elif await tendril.send(line.place, f"{tendril.address(line)}{reply}", line, False):
            self._record(reply)

    async def _put(self, answer: str) -> bool:
        """Send the answer, or put it in place of what has been sent of it."""
        tendril, line = self._tendril, self._line
        text = f"{tendril.address(line)}{answer}"
        if self._message and await tendril.edit(line.place, self._message, text):
            return True
        sent = await tendril.send(line.place, text, line, False)
        self._message = sent if isinstance(sent, str) else ""
        return bool(sent)

    def _record(self, text: str) -> None:
        quotes = text.lines if isinstance(text, QuotingText) else ()
        place, nick = self._line.place, self._tendril.nick
        self._tendril.log.record_own(place, nick, text, self._line, quotes=quotes)


class ChatTendril(Tendril):
    """A tendril for a medium on which people talk.

    It passes what they write to `hear`, and overrides `send`. All else follows: the lines are
    logged, commands run, questions and reminders are answered; the methods marked with `@command`
    are its own commands. `nick` is our name there, with which people begin a question, `prefix`
    what commands begin with, and `per_minute` the most commands and questions of one person, a
    sixth of that at once.

    What else the medium can, it says by what it overrides: `edit` for answers that grow while they
    are written, `typing`, `image`, `members` for who is there, `rights`, `address`.
    """

    nick: str = "Terra"
    prefix: ClassVar[str] = "."
    per_minute: ClassVar[float] = 60.0

    commands: CommandTable[TalkRequest]
    _medium: ChatMedium

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a command with the name of one that every medium has. Raises TypeError."""
        super().__init_subclass__(**options)
        for name, method in vars(cls).items():
            for clash in COMMON_NAMES.intersection(names_of(method)):
                raise TypeError(f"{cls.__name__}.{name}: there is a command {clash} already")

    # What a tendril overrides.

    @abstractmethod
    async def send(
        self, place: Place, text: str, line: LoggedLine | None, alone: bool
    ) -> bool | str:
        """Send a text to a room; return False if that is not possible at the moment, else True or
        the id of the message, by which it can be edited.

        It answers the `line`, if there is one, in its thread; if `alone`, it is for the author of
        the line only, as far as the medium can do so.
        """

    async def edit(self, place: Place, message: str, text: str) -> bool:
        """Replace the text of a message that `send` has returned the id of; return False if that is
        not possible: then it is sent anew."""
        return False

    async def typing(self, place: Place, is_on: bool) -> None:
        """Show that an answer is being written, or no longer; called every three seconds."""

    async def image(self, line: LoggedLine) -> bytes | None:
        """Return the file of the image that belongs to a question, for models that see."""
        return None

    def members(self, place: Place) -> Sequence[str]:
        """Return the nicks of those in a room, none where that is unknown."""
        return ()

    def rights(self, who: Identity) -> Collection[str]:
        """Return the rights of a person, evaluated whenever a tool or a command needs one."""
        return ()

    def address(self, line: LoggedLine) -> str:
        """Return what an answer to a line begins with: in public, the author's nick."""
        return f"{line.who.nick}: " if is_public(line.place) else ""

    def listen(self, line: LoggedLine, *, asked: bool = False) -> None:
        """Observe a line that is no command; `AttentionMixin` does."""

    # What a tendril calls.

    def hear(
        self,
        room: str | Place,
        who: Identity,
        text: str,
        *,
        asked: bool = False,
        msgid: str = "",
        thread: str = "",
    ) -> LoggedLine:
        """Take a line that a person has just said in a room: log it, and in the background run the
        command or answer the question in it. Returns at once, and never raises for what people say.

        A question begins with our `nick`; with `asked` the line is one in any case. By its `msgid`
        it can be redacted; in each `thread` a person has a conversation of their own.
        """
        place, text = self.log.place(room), strip_control_chars(text)
        private = asked or not is_public(place)
        found = parse_command(text, prefix=self.prefix, nicks=(self.nick,), private=private)
        may_log = found is None or found.command not in UNLOGGED
        line = self.log.record(place, who, text, may_log=may_log, msgid=msgid, thread=thread)
        given = self.commands.find(found, self.chat_request(line, found.words)) if found else None
        self.listen(line, asked=given is not None)
        if self.commands.tells.is_awaited(who, place.network):
            self.spawn(self.commands.tells.deliver(self.chat_request(line, "")))
        if given:
            command, request = given
            person = place.network, who.room(str.lower)
            if self._people.try_acquire(person):
                self.spawn(self._medium.run(command, request))
            elif self._people.should_notify(person):
                self.spawn(LineReplies(self, line).send(PrivateReply(RATE_LIMITED)))
        return line

    def note_join(self, room: str | Place, who: Identity) -> None:
        """Log that a person has come into a room."""
        self.log.record(room, who, "", type=EventType.JOIN)

    def note_leave(self, room: str | Place, who: Identity, reason: str = "") -> None:
        """Log that a person has left a room, and stop what they have asked there."""
        self.log.record(room, who, strip_control_chars(reason), type=EventType.PART)
        self.stop(conversation_name(self.log.place(room), who))

    def chat_request(self, line: LoggedLine, words: str) -> TalkRequest:
        """Create the request for a command with `words` in a line."""
        place, who, rights = line.place, line.who, partial(self.rights, line.who)
        turn, replies, members = (
            self.request(line, words),
            LineReplies(self, line),
            self.members(place),
        )
        can_edit = type(self).edit is not ChatTendril.edit
        return TalkRequest(
            place=place,
            private=not is_public(place),
            who=who,
            words=words,
            scope=Scope.from_places(place),
            pending_event=line.pending,
            admin=ADMIN in rights(),
            person=turn.person,
            rights=rights,
            turn=replace(
                turn,
                rights=rights,
                deliver=replies.deliver,
                on_text=replies.on_text if can_edit else None,
                room_view=RoomView(members) if members else None,
                joins=True,
            ),
            take=replies.take,
            send=replies.send,
            members=members,
            home=Scope.from_places(place),
        )

    # The process.

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open everything, and make the table of commands. Raises StorageError and ConfigError."""
        async with super().open_resources():
            self.log.members = self.members
            self._medium = ChatMedium(self, self)
            self.commands = CommandTable(self._medium, owner=self)
            await self.commands.tells.load()
            clock = asyncio.get_running_loop().time
            self._people = TokenBuckets(self.per_minute / 60, clock, refusals_cost=True)
            yield

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the coroutines to run concurrently with `serve`: that of scheduled questions."""
        return [*super().background(), self.remind.run_questions(self._ask_scheduled)]

    async def say(self, place: Place, text: str) -> bool:
        """Say a text of another tendril, or a reminder; return False if that is not possible."""
        return await self.say_quoting(place, text, frozenset())

    async def say_quoting(self, place: Place, text: str, quotes: frozenset[int]) -> bool:
        """Say a text as `say` does, and log which lines it quotes."""
        place = self.log.place(place.channel) if not place.network else place
        is_sent = await self.send(place, text, None, False)
        if is_sent:
            self.log.record_own(place, self.nick, text, quotes=quotes)
        return bool(is_sent)

    async def _ask_scheduled(self, reminder: Reminder) -> RunOutcome:
        """Ask a scheduled question in the name of its owner, and say the answer in its place."""
        owner, place, asked = reminder.owner, reminder.place, None
        who = Identity(owner.nick, owner.user, owner.host, owner.account)
        if self.log.opt_outs.opt_out_rules.hides_person(place.network, who):
            return RunOutcome.ENDED
        if line := reminder.question_event_id:
            asked = await self.log.chat_log.get(Scope.from_places(place), line)
            if asked is None:
                return RunOutcome.ENDED  # the line that scheduled it was erased
        members = self.members(place)
        if members and who.nick not in members and ADMIN not in self.rights(who):
            return RunOutcome.ABSENT
        pending = PendingEvent.stored(line, asked)
        turn = self.chat_request(LoggedLine(place, who, reminder.text, pending), reminder.text).turn

        if window := turn.log_window:
            now = id_at(self.clock.now())
            window = replace(window, anchor=now, since=previous_due(reminder), pending_event=None)
            turn = replace(turn, log_window=window)
        return await ask_later(self, reminder, replace(turn, deliver=None, on_text=None))


async def ask_later(tendril: Tendril, reminder: Reminder, turn: TurnRequest) -> RunOutcome:
    """Put a scheduled question to the model by a `turn`, which delivers the answer or has it said
    in the place of the question."""

    async def deliver(result: TurnResult) -> bool:
        text = f"{'' if reminder.private else f'{reminder.owner.nick}: '}{result.text}"
        return not (result.ok and result.text) or await tendril.say_quoting(
            reminder.place, text, result.quotes
        )

    result = await tendril.turn(
        replace(
            turn,
            deliver=turn.deliver or deliver,
            priority="background",
            trigger="job" if turn.keeps else "standard",
            # One key for all attempts at this due time, so that none repeats effects of tools.
            run=f"scheduled/{reminder.id}/{reminder.due.isoformat()}" if turn.keeps else "",
        )
    )
    return RunOutcome.ASKED if result.ok else RunOutcome.LATER
