"""Commands and questions in what people write, the requests that they make, what those need of
their medium, and how many a person may make."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from harnesses.core.services.peers import Origin
from harnesses.core.services.reminders import Requester
from harnesses.core.services.shared_log import conversation_name, room_name
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import web_address
from harnesses.core.tendril.turn import Action, TurnResult
from llm.reading.reading import Reading, words_beside_frame
from llm.reading.times import NotUnderstood
from llm.tools.consent import Rights
from llm.tools.toolbox import ToolError
from storage.chat_log.event import NICK_GAP, Identity, PendingEvent, Place, Scope, escape_name
from storage.queues.reminders import Owner

ASK_COMMAND = "terrarium"
"""The command that asks the model."""

QUESTION_COMMANDS = (ASK_COMMAND, "ask")
"""All names of that command."""

UNLOGGED = frozenset({"nolog", "forget"})
"""The commands that are not logged: they are about a person's own data."""

MAX_OPEN_QUESTIONS = 5
"""The maximum number of questions of one person that are being answered or queued."""

RATE_LIMITED = "Slow down, please: I will answer you again after a short pause."
TOO_MANY = (
    f"I am still working on {MAX_OPEN_QUESTIONS} of your questions, so I have not taken this one:"
    " ask it again later, or stop them."
)

_BURST_SECONDS = 10.0  # worth of tokens in a full bucket
_NOTIFY_INTERVAL = 60.0  # seconds between notifications of the same person or channel
_MAX_BUCKETS = 2_000  # the least recently used, which is evicted, has usually filled up again

_COMMAND = re.compile(r"(?P<name>[a-zA-Z]+)(?:\s+(?P<words>.*))?", re.DOTALL)
# `forget me`, also with its confirmation word, and `nolog`, said to our nick and without a prefix.
_OWN_DATA = re.compile(
    r"(?P<name>forget(?= me)|nolog)(?P<words>(?<=forget) me(?: [0-9a-f]{6})?|(?<=nolog) off)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command by name, and the words after it.

    `question` is what was said to our nick if it began with the prefix, as a question it is if
    there is no such command: "Terra: .net or java?". It is `too_fast` in a loop with a bot.
    """

    command: str
    words: str
    question: str = ""
    too_fast: bool = False


def parse_command(
    text: str, *, prefix: str, nicks: Sequence[str], private: bool
) -> ParsedCommand | None:
    """Parse `.command words`, or a question: a line that addresses one of our nicks.

    In private, any other text is a question as well. Return None for everything else.
    """
    said = text.replace(NICK_GAP, "").strip()
    if command := _with_prefix(said, prefix):
        return command
    words = _words_to(nicks, said)
    if words is not None:
        command = _with_prefix(words, prefix)
        return replace(command, question=words) if command else _question(words)
    return _question(said) if private and said else None


def _with_prefix(said: str, prefix: str) -> ParsedCommand | None:
    match = _COMMAND.fullmatch(said, len(prefix)) if said.startswith(prefix) else None
    return ParsedCommand(match["name"].lower(), (match["words"] or "").strip()) if match else None


def _words_to(nicks: Sequence[str], said: str) -> str | None:
    """Return what is said to one of these nicks, None if none is addressed: "nick: words",
    "hey nick, words", "@nick words", "nick words?", "nick?" or "words, nick"."""
    if not nicks:
        return None
    nick = rf"@?(?:{'|'.join(map(re.escape, nicks))})"
    sign = rf"(?:{nick}(?:\s*[:,;]|\s+-\s)|@{nick[2:]}(?!\S))"
    # What stands before the nick may only greet.
    first = re.match(rf"((?:[^\s,:]+,?\s+){{0,2}}){sign}\s*(.*)", said, re.I | re.S)
    if first and not words_beside_frame(first[1], ""):
        return first[2].strip()
    if asked := re.fullmatch(rf"{nick}(?:\s+(.+\?)|\?)", said, re.I | re.S):
        return (asked[1] or "").strip()
    last = re.fullmatch(rf"(.+?)[,;]\s*{nick}\s*([?!.]*)", said, re.I | re.S)
    return last[1] + last[2] if last else None


def _question(words: str) -> ParsedCommand:
    """Return the question, or the privacy command that the words are: those are never logged."""
    if match := _OWN_DATA.fullmatch(words):
        return ParsedCommand(match["name"].lower(), (match["words"] or "").strip())
    return ParsedCommand(ASK_COMMAND, words)


@dataclass(frozen=True, slots=True)
class PrivateReply:
    """A reply for the author alone, where the medium has such."""

    text: str


Reply = str | PrivateReply
"""The reply to a command, "" for none."""


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command with its author and context.

    - It was given in `place`; it is `private` unless the whole room has seen it.
    - `who` gave it; `admin` tells whether they are one, `rights` returns the rights that they have,
      `scope` is what of the log they may read.
    - `person` is the key under which memory keeps what is theirs.
    - `pending_event` is its line on the way into the log, without an event if it is not logged.
    - `model` is the one that a question names, "" for that of the place.
    """

    place: Place
    private: bool
    who: Identity
    words: str
    scope: Scope
    pending_event: PendingEvent
    admin: bool
    person: str
    rights: Rights = frozenset
    model: str = ""

    @property
    def nick(self) -> str:
        """The nick of the author."""
        return self.who.nick

    @property
    def room(self) -> str:
        """The key of the place in memory."""
        return room_name(self.place)

    @property
    def conversation(self) -> str:
        """The name of the author's conversation in the place."""
        return conversation_name(self.place, self.who)

    @property
    def origin(self) -> Origin:
        """The origin of questions to other tendrils on behalf of the author."""
        return Origin(self.place.network, self.who, self.scope)

    @property
    def requester(self) -> Requester:
        """The author as a requester of reminders."""
        who = self.who
        return Requester(
            owner=Owner(self.place.network, who.nick, who.user, who.host, who.account),
            place=self.place,
            private=self.private,
            room=self.room,
            person=self.person,
            question=self.pending_event,
            is_admin=self.admin,
        )

    def fold(self, text: str) -> str:
        """Return a nick, or the name of a room, as the medium compares it."""
        return text.lower()

    def owns(self, conversation: str) -> bool:
        """Return whether a conversation is with the author, privately or in any room."""
        network, _, rest = conversation.partition("/")
        room, _, person = rest.partition("/")
        of_author = escape_name(self.person if person else self.who.room(self.fold))
        return network == self.place.network and of_author == (person or room)


R = TypeVar("R", bound=CommandRequest)

Command = Callable[[R], Awaitable[Reply]]
"""A command: a function of its request whose docstring, "NAME ARGUMENTS: purpose", is its help."""

FindCommand = Callable[[Reading], Awaitable[Action | None]]
"""Returns what runs the command that a question asks for in plain words, None for a question."""


class Medium(ABC, Generic[R]):
    """The medium of a `tendril`, as its commands see it.

    A subclass delivers replies (`reply`), puts questions to the model (`ask`), and knows names and
    people there; the defaults are those of a medium that shows every answer whole.
    """

    @property
    @abstractmethod
    def tendril(self) -> Tendril:
        """The tendril."""

    @abstractmethod
    async def ask(self, request: R, command: FindCommand) -> Reply:
        """Run the turn of a question, which delivers the answer itself, or the `command` that it
        asks for in plain words; return a refusal or ""."""

    @abstractmethod
    async def reply(self, request: R, reply: Reply) -> None:
        """Deliver a reply to the author of a request, unless it is empty."""

    async def run(self, command: Command[R], request: R) -> None:
        """Run any command and reply with its text, for a mistake of the author with that of the
        error, or else with an apology."""

        async def execute() -> TurnResult:
            try:
                reply = await command(request)
            except (NotUnderstood, ToolError) as error:
                reply = PrivateReply(str(error))
            await self.reply(request, reply)
            return TurnResult("")

        result = await self.tendril.turns.catch_errors(execute)
        await self.reply(request, result.text)

    @abstractmethod
    def prefix(self, place: Place) -> str:
        """Return what commands begin with in a place."""

    @abstractmethod
    def nicks(self, request: R) -> Sequence[str]:
        """Return our nicks in the place of a request, the present one first."""

    def parse(self, text: str, nicks: Sequence[str], request: R) -> ParsedCommand | None:
        """Parse what was said in the place of a request, see `parse_command`."""
        prefix = self.prefix(request.place)
        return parse_command(text, prefix=prefix, nicks=nicks, private=False)

    def shown_nick(self, nick: str) -> str:
        """Return a nick as it is shown without calling its owner."""
        return nick

    def is_bridged(self, request: R, who: Identity) -> bool:
        """Return whether somebody seen on the network of a request speaks through a relay."""
        return False

    @abstractmethod
    def members(self, request: R) -> Sequence[str]:
        """Return the nicks of those in the place of a request; none where the author is alone with
        us, or unknown to others."""

    def model(self, request: R) -> str:
        """Return the name of the model in the place of a request."""
        return self.tendril.agent.model

    @abstractmethod
    def persona(self, request: R) -> str | None:
        """Return the name of the persona there, None for that of the tendril."""

    @abstractmethod
    def keeps(self, request: R) -> bool:
        """Return whether anything of a request may be remembered."""

    def is_logged(self, request: R) -> bool:
        """Return whether the place of a request is in the log, unless its author objects."""
        return True

    @property
    def web_address(self) -> str | None:
        """The base URL of the web pages for people there; None while they have none."""
        return web_address(self.tendril.config)

    def readable_scope(self, request: R) -> Scope:
        """Return what of the log the author of a request may read, elsewhere too."""
        return request.scope

    def home(self, request: R) -> Scope:
        """Return the part of the log that an author calls "here"."""
        return Scope.from_places(request.place)

    def payer(self, request: R) -> str:
        """Return the name under which what an author asks is counted."""
        return request.person

    def stop(self, request: R, nick: str) -> bool:
        """Stop what the author of a request, or `nick`, has asked in its place; return whether
        there was anything."""
        return not nick and self.tendril.stop(request.conversation)

    async def clear(self, request: R) -> int:
        """Delete the author's conversation; return how many turns it had. Raises StorageError."""
        return await self.tendril.clear(request.conversation)

    async def more(self, request: R) -> Reply:
        """Send the rest of a long answer, or return what there is to say instead."""
        return "There is no more."


class MediumCommands(Generic[R]):
    """The base of some of a medium's commands: its public methods."""

    def __init__(self, medium: Medium[R]) -> None:
        self._medium = medium


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float
    notified: float = -math.inf


class TokenBuckets:
    """Token buckets by key: each gains `rate` tokens per second and holds those of ten seconds.

    With `refusals_cost` a refused request costs a token too, and the balance may become negative.
    `clock` returns seconds and must be monotonic.
    """

    def __init__(self, rate: float, clock: Callable[[], float], *, refusals_cost: bool) -> None:
        self._clock = clock
        self._refusals_cost = refusals_cost
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()
        self.set_rate(rate)

    def set_rate(self, rate: float) -> None:
        """Change the tokens per second; the balances stay, as far as the buckets hold them."""
        self._rate, self._capacity = rate, max(1.0, rate * _BURST_SECONDS)
        for bucket in self._buckets.values():
            bucket.tokens = max(bucket.tokens, -self._capacity)

    def try_acquire(self, key: Hashable) -> bool:
        """Take a token from the bucket of `key`; return False if there was none."""
        bucket = self._refill(key)
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return True
        if self._refusals_cost:
            # Bounded, so that the quiet time needed does not grow with the length of the flood.
            bucket.tokens = max(bucket.tokens - 1, -self._capacity)
        return False

    def should_notify(self, key: Hashable) -> bool:
        """Return True if a refusal should be announced, at most once a minute per key."""
        bucket = self._refill(key)
        if bucket.filled - bucket.notified < _NOTIFY_INTERVAL:
            return False
        bucket.notified = bucket.filled
        return True

    def _refill(self, key: Hashable) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(self._capacity, now))
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(self._capacity, bucket.tokens + (now - bucket.filled) * self._rate)
        bucket.filled = now
        return bucket


class ConcurrencyLimit:
    """A limit of `MAX_OPEN_QUESTIONS` per person: those being answered or queued."""

    def __init__(self) -> None:
        self._waiting: Counter[Hashable] = Counter()

    def is_full(self, person: Hashable) -> bool:
        """Return True if a person has the maximum number of open questions."""
        return self._waiting[person] >= MAX_OPEN_QUESTIONS

    @contextmanager
    def hold(self, person: Hashable) -> Iterator[None]:
        """Count a question of a person as open until the block ends."""
        self._waiting[person] += 1
        try:
            yield
        finally:
            self._waiting[person] -= 1
            if not self._waiting[person]:
                del self._waiting[person]
