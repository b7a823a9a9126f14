"""Requests: who makes them, what they ask for, and which are answered.

A list of people has masks with `!` or `@` (`*!*@staff.example.org`; `*` stands for any characters,
`?` for one) and names of services accounts. An empty list means nobody.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import lru_cache

import structlog

from harnesses.core.rate_limit import TokenBuckets
from harnesses.core.services.peers import Origin
from harnesses.irc.channel_settings import AdminOverrides
from harnesses.irc.policy.log_records import (
    channel_key,
    conversation_id,
    is_public,
    place_of,
    scope_of,
    status_of,
)
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.isupport import Casemap, is_nick
from harnesses.irc.session.state import Member
from harnesses.irc.settings import IrcSettings
from harnesses.irc.transport.network import Network
from storage.chat_log.event import Identity, PendingEvent, Place, Scope

_log = structlog.get_logger()

_COMMAND = re.compile(r"(?P<name>[a-zA-Z]+)(?:\s+(?P<words>.*))?", re.DOTALL)
_OWN_DATA = re.compile(
    r"(?P<name>forget(?= me)|nolog)(?P<words>(?<=forget) me(?: [0-9a-f]{6})?|(?<=nolog) off)?",
    re.IGNORECASE,
)
ASK = "terrarium"

QUICK_TURNS = 3
"""Lines in a row that came faster than anybody types; the last of them is not answered."""

QUIET = 60.0
"""Seconds of silence after which somebody who wrote too fast is answered again."""

MOST_TURNS, TURNS_WITHIN = 60, 3600.0
"""Turns of one person in a room, in so many seconds, while nobody else there says anything that is
not for us; a prefix counts as no turn, for bots do not know it."""

MOST_KICKS, KICKS_WITHIN = 3, 3600.0
"""Kicks in so many seconds after which we do not come back."""

_TYPED = 15.0  # characters that a fast typist writes in a second
_READ = 1.0  # seconds that even the shortest answer takes to read
_KEPT = 1_000  # people
_BRIDGED = re.compile(r"\s*[<\[(](?P<nick>[^\s>\])][^>\])]{0,63})[>\])]\s+(?P<text>.+)", re.DOTALL)
_BRIDGED_NICK = re.compile(r"[^\s,:!@*?#&+$%~][^\s,:!@*?#&+]*")
_FORMATTING = re.compile(
    r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|[\x00-\x09\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e]"
)


_SERVICES = "Nick Chan Memo Oper Bot Host Sasl Auth Info Stat Help Group Spam Root Bouncer"
SERVICES = (
    *(f"{name}Serv!*@*" for name in _SERVICES.split()),
    *("*!*@services", "*!*@services.*", "*!*@*.services"),
    *("Q!*@*quakenet.org", "X!*@*undernet.org", "*!*@znc.in", "*!bip@b.i.p"),
)
"""Masks of services, and of bouncers that speak to their user or play back what was said: words to
them would be commands."""


def matches_any(who: Identity, entries: Iterable[str], fold: Casemap) -> bool:
    """Return whether an entry of the list means `who`, by account or mask."""
    whole = fold(who.mask)
    for entry in entries:
        if "!" in entry or "@" in entry:
            if _pattern(fold(mask_of(entry))).fullmatch(whole):
                return True
        elif who.account and not who.bridged and fold(who.account) == fold(entry):
            return True
    return False


def mask_of(entry: str) -> str:
    """Return a whole `nick!user@host` mask of one with parts left out, or of a nick alone."""
    if "!" in entry:
        return entry
    return f"*!{entry}" if "@" in entry else f"{entry}!*@*"


@lru_cache(maxsize=256)
def _pattern(mask: str) -> re.Pattern[str]:
    """Return a mask as a pattern; only `*` and `?` are special, as nicks may have brackets."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(char) or re.escape(char) for char in mask), re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command by name, and the words after it."""

    command: str
    words: str


def parse_command(
    text: str, *, prefix: str, nicks: Sequence[str], private: bool
) -> ParsedCommand | None:
    """Parse `.command words`, `nick: words` or `@nick words` to one of our nicks, and in private
    anything."""
    said = text.strip()
    if said.startswith(prefix) and (match := _COMMAND.fullmatch(said, len(prefix))):
        return ParsedCommand(match["name"].lower(), (match["words"] or "").strip())
    ours = "|".join(map(re.escape, nicks))
    address = rf"(?:@?(?:{ours})\s*[:,]|@(?:{ours})(?!\S))\s*(?P<words>.*)"
    if nicks and (match := re.match(address, said, re.IGNORECASE | re.DOTALL)):
        return _question(match["words"].strip())
    return _question(said) if private and said else None


def _question(words: str) -> ParsedCommand:
    """Return a question, or a command about one's own data: those are never logged."""
    if match := _OWN_DATA.fullmatch(words):
        return ParsedCommand(match["name"].lower(), (match["words"] or "").strip())
    return ParsedCommand(ASK, words)


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command as somebody gave it. It was given in `place`, and what is said there goes to
    `recipient`: the channel, those of a channel with a status (`@#c`), or the person. All but a
    channel is `private`. `pending_event` is its line on the way into the log, without
    an event where nothing is logged; `admin` tells whether they may give admin commands. `queued`
    is the time at which a command that waits for its turn was given."""

    network: Network
    place: Place
    recipient: str
    private: bool
    who: Identity
    words: str
    scope: Scope
    pending_event: PendingEvent
    admin: bool
    queued: datetime | None = None

    @property
    def nick(self) -> str:
        """The nick of the person who asks."""
        return self.who.nick

    @property
    def origin(self) -> Origin:
        """The origin of the question, for other tendrils that are asked because of it."""
        return Origin(self.network.name, self.who, self.scope)


def conversation_of(request: CommandRequest, nick: str = "") -> str:
    """Return the conversation of whoever asks, or of `nick`, where `request` was given. In a
    private conversation, that is the only one."""
    fold, own = request.network.fold, request.who.name
    if request.recipient == own and fold(nick or own) == fold(own):
        return channel_key(request.place, fold)
    return conversation_id(request.place, nick or own, fold)


class PrivateReply(str):
    """The reply of a command that is for the one person only, and not said to all."""

    __slots__ = ()


Command = Callable[[CommandRequest], Awaitable[str]]
"""Does what is asked and returns the reply, "" to stay silent."""


class Decision(Enum):
    """The verdict on a command. TELL: it is not carried out, and the person is told why, once."""

    YES = "yes"
    NO = "no"
    TELL = "tell"


class RequestPolicy:
    """Decides which events are answered. `clock` returns seconds and never goes back."""

    def __init__(
        self, settings: IrcSettings, overrides: AdminOverrides, clock: Callable[[], float]
    ) -> None:
        self._overrides, self._clock = overrides, clock
        self._loop_detector = BotLoopDetector(clock)
        self._explained = TokenBuckets(1.0, clock, refusals_cost=False)
        self.configure(settings)

    def configure(self, settings: IrcSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        person, room = settings.person_per_minute / 60, settings.channel_per_minute / 60
        self._people = TokenBuckets(person, self._clock, refusals_cost=True)
        self._rooms = TokenBuckets(room, self._clock, refusals_cost=False)

    def speaker(self, network: Network, event: IrcEvent) -> tuple[IrcEvent, Identity]:
        """Return the event as of whoever really speaks."""
        return resolve_relay(event, self._settings, network.fold)

    def place(self, network: Network, event: IrcEvent, who: Identity) -> Place:
        """Return where an event of `who` happened."""
        other = who
        if event.own and event.channel is None:  # said to somebody: whom we know, or only the nick
            known = network.person(event.target)
            other = identity_of(known) if known else Identity(event.target)
        return place_of(event, other, network.fold)

    def parse_trigger(
        self, network: Network, event: IrcEvent, who: Identity, prefix: str
    ) -> ParsedCommand | None:
        """Return the command in an event, if it is one that is answered at all."""
        private = event.channel is None
        if private and network.fold(event.target) != network.fold(network.nick):
            return None  # to all on a server (`$*`), or to others that we do not know of
        asked = self.parse_words(network, event, prefix)
        if not self.should_process(network, event, who):
            return None
        if not asked:
            if is_public(event) and event.type in ("PRIVMSG", "ACTION"):
                place = (network.name, network.fold(event.channel or ""))
                self._loop_detector.note_line(place, _person(network, who))
            return None
        by_prefix = event.text.strip().startswith(prefix)
        room = event.channel or ""
        return None if not by_prefix and self.is_bot_loop(network, who, event.text, room) else asked

    def parse_words(self, network: Network, event: IrcEvent, prefix: str) -> ParsedCommand | None:
        """Return the command in an event by its words alone, whoever said it and when."""
        if event.type != "PRIVMSG":
            return None
        # People go on calling us by the configured nick while we have another.
        nicks, private = (network.nick, network.settings.nick), event.channel is None
        return parse_command(event.text, prefix=prefix, nicks=nicks, private=private)

    def is_bot_loop(self, network: Network, who: Identity, text: str, channel: str) -> bool:
        """Return whether these words are part of a loop with another bot, which has to end."""
        room = (network.name, network.fold(channel))
        closed = self._loop_detector.is_loop(_person(network, who), text, room)
        if closed:
            _log.info("irc.loop_ended", network=network.name)
        return closed

    def should_process(self, network: Network, event: IrcEvent, who: Identity) -> bool:
        """Return whether an event is of somebody whom we answer, and of now."""
        if event.own or event.batch_type or is_bot(event, who, self._settings, network.fold):
            return False
        return is_person(who, network.fold) and not self.is_ignored(network, who)

    def request(
        self,
        network: Network,
        event: IrcEvent,
        who: Identity,
        words: str,
        pending_event: PendingEvent,
    ) -> CommandRequest:
        """Return a command with `words` as a request."""
        place = self.place(network, event, who)
        return CommandRequest(
            network=network,
            place=place,
            recipient=who.nick if event.channel is None else status_of(event) + event.channel,
            private=not is_public(event),
            who=who,
            words=words,
            scope=scope_of(place, self._settings.channel_groups),
            pending_event=pending_event,
            admin=self.is_admin(network, who),
        )

    def decide(self, request: CommandRequest) -> Decision:
        """Decide by the rate limits of the person and of the channel."""
        person = _person(request.network, request.who)
        room = (person[0], request.network.fold(request.place.channel))
        if self._people.try_acquire(person) and self._rooms.try_acquire(room):
            return Decision.YES
        return Decision.TELL if self.should_notify(request) else Decision.NO

    def should_notify(self, request: CommandRequest) -> bool:
        """Return whether to tell whoever asks that it is too much: once a minute."""
        return self._people.should_notify(_person(request.network, request.who))

    def should_explain(self, request: CommandRequest) -> bool:
        """Return whether to tell whoever asks that what they gave is no command: once a minute,
        whatever their nick is."""
        return self._explained.should_notify(payer_of(request.network, request.who))

    def note_reply(self, request: CommandRequest) -> None:
        """Note that we have said something to whoever asked."""
        self.note_reply_to(request.network, request.who.name)

    def note_reply_to(self, network: Network, name: str) -> None:
        """Note that we have said something to somebody."""
        self._loop_detector.note_reply((network.name, network.fold(name)))

    def is_admin(self, network: Network, who: Identity) -> bool:
        """Return whether somebody may give admin commands; nobody who speaks through a relay."""
        return not who.bridged and matches_any(who, self._settings.admins, network.fold)

    def is_ignored(self, network: Network, who: Identity) -> bool:
        """Return whether somebody is not heard, by the settings or by what an admin said."""
        masks: Collection[str] = (
            *self._settings.ignore,
            *self._overrides.ignore_masks(network.name),
        )
        return matches_any(who, masks, network.fold) and not self.is_admin(network, who)


def _person(network: Network, who: Identity) -> tuple[str, str]:
    return network.name, network.fold(who.name)


def payer_of(network: Network, who: Identity) -> str:
    """Return in whose name somebody's use is counted: the account, else user name and host, as a
    nick is changed in a moment; through a relay there is only the nick."""
    if who.account:
        return f"{network.name}/~{network.fold(who.account)}"
    host = f"{who.user}@{who.host}".lower()
    return f"{network.name}/{network.fold(who.name) if who.bridged or not who.host else host}"


def resolve_relay(
    event: IrcEvent, settings: IrcSettings, fold: Casemap
) -> tuple[IrcEvent, Identity]:
    """Return the event as of the person whose words a configured relay repeats, and who that is.

    That counts on channels: what a relay says in private, or to a part of a channel, are its own
    words, and so is what it says in the name of a nick that nobody can have. A nick with blanks in
    it gets underscores: it must not look like two people.
    """
    who = Identity(event.nick, event.user or "", event.host or "", event.account)
    if event.type not in ("PRIVMSG", "ACTION") or not is_public(event):
        return event, who
    if not matches_any(who, settings.relays, fold):
        return event, who
    match = _BRIDGED.fullmatch(_FORMATTING.sub("", event.text))
    if not match:
        return event, who
    nick = re.sub(r"\s+", "_", match["nick"].strip().lstrip("@+%&~"))
    if not _BRIDGED_NICK.fullmatch(nick):
        return event, who
    person = Identity(nick, who.user, who.host, None, bridged=True)
    return replace(event, nick=nick, text=match["text"], account=None, bot=False), person


def identity_of(member: Member) -> Identity:
    """Return somebody on a channel as a person."""
    return Identity(member.nick, member.user or "", member.host or "", member.account)


def is_person(who: Identity, fold: Casemap) -> bool:
    """Return whether it can be a person who speaks: no server, service or module of a bouncer."""
    if who.bridged:
        return True
    return is_nick(who.nick) and bool(who.host) and not matches_any(who, SERVICES, fold)


def is_bot(event: IrcEvent, who: Identity, settings: IrcSettings, fold: Casemap) -> bool:
    """Return whether a bot said it, by the server or the configuration. Bridged people are none."""
    if who.bridged:
        return False
    bots = (*settings.bots, *settings.relays)
    nicks = {fold(entry) for entry in bots}
    return event.bot or fold(who.nick) in nicks or matches_any(who, bots, fold)


class KickCounter:
    """Counts kicks by channel. `clock` returns seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[Hashable, list[float]] = {}

    def limit_reached(self, place: Hashable) -> bool:
        """Take note of a kick; whether it is time to stay away."""
        now = self._clock()
        times = [time for time in self._times.get(place, ()) if now - time < KICKS_WITHIN]
        self._times[place] = [*times, now]
        return len(self._times[place]) >= MOST_KICKS


@dataclass(slots=True)
class _Exchange:
    """Times of our last reply to somebody and of their lines since."""

    answered: float
    quick: int = 0
    last: float = 0.0


class BotLoopDetector:
    """Finds other bots, whatever they call themselves: those who answer us faster than anybody
    types, and those who go on for an hour while nobody else says anything but to us.

    `clock` returns seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._people: OrderedDict[Hashable, _Exchange] = OrderedDict()
        self._turns: OrderedDict[tuple[Hashable, Hashable], deque[float]] = OrderedDict()

    def note_reply(self, person: Hashable) -> None:
        """Note that we have said something to a person."""
        exchange = self._people.setdefault(person, _Exchange(0.0))
        exchange.answered = self._clock()
        self._people.move_to_end(person)
        if len(self._people) > _KEPT:
            self._people.popitem(last=False)

    def note_line(self, room: Hashable, person: Hashable) -> None:
        """Note that somebody has said something in a room that was not for us: there are people."""
        for other in [each for each in self._turns if each[0] == room and each[1] != person]:
            del self._turns[other]

    def is_loop(self, person: Hashable, text: str, room: Hashable) -> bool:
        """Return whether these words, addressed to us, go round in a loop that has to end."""
        return self._is_endless(room, person) or self._is_quick(person, text)

    def _is_endless(self, room: Hashable, person: Hashable) -> bool:
        now = self._clock()
        times = self._turns.setdefault((room, person), deque(maxlen=MOST_TURNS))
        self._turns.move_to_end((room, person))
        if len(self._turns) > _KEPT:
            self._turns.popitem(last=False)
        if len(times) == MOST_TURNS and now - times[0] < TURNS_WITHIN:
            return True
        times.append(now)
        return False

    def _is_quick(self, person: Hashable, text: str) -> bool:
        exchange = self._people.get(person)
        if exchange is None:
            return False
        now = self._clock()
        if exchange.quick >= QUICK_TURNS and now - exchange.last < QUIET:
            exchange.last = now
            return True
        quick = now - exchange.answered < max(_READ, len(text) / _TYPED)
        exchange.quick = exchange.quick + 1 if quick else 0
        exchange.last = now
        return exchange.quick >= QUICK_TURNS
