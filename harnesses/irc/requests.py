"""Requests: their places, authors and parsing, and the policy of which ones are answered.

Lists of people in the settings have services accounts and masks. An entry with `!` or `@` is a mask
such as `*!*@staff.example.org`, where `*` matches any characters and `?` one. An empty list matches
nobody.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import structlog

from harnesses.core.commands.request import (
    CommandRequest,
    ParsedCommand,
    TokenBuckets,
    parse_command,
)
from harnesses.irc.channel_settings import LiveSettings
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import Casemap, is_nick, sanitize
from harnesses.irc.session.session import Member
from harnesses.irc.settings import IrcSettings
from harnesses.irc.transport.network import Network
from harnesses.irc.transport.networks import Networks
from storage.chat_log.event import (
    NICK_GAP,
    Event,
    EventType,
    Identity,
    PendingEvent,
    Place,
    Scope,
    channel_of_room,
    escape_name,
    is_private,
    status_room,
)

_log = structlog.get_logger()

QUICK_TURNS = 3
"""Consecutive lines, each faster than anybody types, that mark a bot; the last gets no answer."""

QUIET_SECONDS = 60.0
"""Seconds of silence after which somebody who wrote too fast is answered again."""

MAX_TURNS, TURNS_WINDOW = 60, 3600.0
"""The most turns of one person in a room within so many seconds, while nobody else there says
anything except to us. Commands with the prefix do not count, as other bots do not know it."""

_TYPING_SPEED = 15.0  # characters that a fast typist writes in a second
_READING_TIME = 1.0  # seconds that even the shortest answer takes to read
_MAX_PEOPLE = 1_000  # people
# Relays write "<nick> text"; the nick may have neither what makes an address or a mask of it, nor a
# channel's prefix.
_BRIDGED = re.compile(r"\s*[<\[(](?P<nick>[^\s>\])][^>\])]{0,63})[>\])]\s+(?P<text>.+)", re.DOTALL)
_BRIDGED_NICK = re.compile(r"[^\s,:!@*?#&+$%~][^\s,:!@*?#&+]*")
# Relays break nicks with zero-width spaces, so that they highlight nobody.
_ZERO_WIDTH = re.compile("[\u200b-\u200f]")

_SERVICES = "Nick Chan Memo Oper Bot Host Sasl Auth Info Stat Help Group Spam Root Bouncer"
SERVICES = (
    *(f"{name}Serv!*@*" for name in _SERVICES.split()),
    *("*!*@services", "*!*@services.*", "*!*@*.services"),
    *("Q!*@*quakenet.org", "X!*@*undernet.org", "*!*@znc.in", "*!bip@b.i.p"),
)
"""Masks of network services and bouncers. They get no reply: they would read it as a command."""


def matches_any(who: Identity, entries: Iterable[str], fold: Casemap) -> bool:
    """Return whether any entry matches `who`, by account or mask."""
    whole = fold(who.mask)
    for entry in entries:
        if "!" in entry or "@" in entry:
            # Brackets are literal, as nicks may have them.
            if fnmatchcase(whole, fold(mask_of(entry)).replace("[", "[[]")):
                return True
        elif who.account and not who.bridged and fold(who.account) == fold(entry):
            return True
    return False


def mask_of(entry: str) -> str:
    """Complete a partial mask, or a bare nick, to a `nick!user@host` mask."""
    if "!" in entry:
        return entry
    return f"*!{entry}" if "@" in entry else f"{entry}!*@*"


@dataclass(frozen=True, slots=True, kw_only=True)
class IrcRequest(CommandRequest):
    """A command on a network, with its author and context.

    Replies go to `recipient`: the channel, its members with a status (`@#c`), or the person. A
    `PrivateReply` is a NOTICE; bridged people get it on the channel.
    """

    network: Network
    recipient: str

    @property
    def room(self) -> str:
        """The key of the place in memory."""
        return room_key(self.place, self.network.fold)

    @property
    def conversation(self) -> str:
        """The name of the author's conversation in the place.

        On a channel each person has a separate one, so that nobody waits for another's answer and
        each can `clear` it alone. A private room has a single one, with the name of the room.
        """
        is_direct = self.recipient == self.who.name
        return self.room if is_direct else f"{self.room}/{escape_name(self.person)}"

    def fold(self, text: str) -> str:
        """Return a nick, or the name of a channel, as the network compares it."""
        return self.network.fold(text)


@dataclass(frozen=True, slots=True)
class Heard:
    """An event with its author, of a relayed message the person behind the relay, and its place in
    the log."""

    network: Network
    event: IrcEvent
    who: Identity
    place: Place


class RequestPolicy:
    """The policy of which events on `networks` are answered, and how often.

    `clock` returns monotonic seconds.
    """

    def __init__(self, networks: Networks, live: LiveSettings, clock: Callable[[], float]) -> None:
        self._networks, self._live = networks, live
        self._loop_detector = BotLoopDetector(clock)
        self._explained = TokenBuckets(1.0, clock, refusals_cost=False)
        self._keys: OrderedDict[tuple[str, str], str] = OrderedDict()  # of people, by private room
        # A refused command costs its author a token, so that a flood is not heard until it pauses.
        # It costs the channel none: others there would pay for it.
        self._people = TokenBuckets(1.0, clock, refusals_cost=True)
        self._rooms = TokenBuckets(1.0, clock, refusals_cost=False)
        self.configure(networks.settings)

    def configure(self, settings: IrcSettings) -> None:
        """Apply other settings; whoever has used up a rate limit is not free again by that."""
        self._settings = settings
        self._people.set_rate(settings.person_per_minute / 60)
        self._rooms.set_rate(settings.channel_per_minute / 60)

    def hear(self, network: Network, event: IrcEvent) -> Heard:
        """Return an event with its author and place.

        Of what a configured relay says to a whole channel the author is the person whose nick it
        names; blanks in that become underscores, so that one person does not look like two. In
        private, to part of a channel, or with a nick that nobody can have, the relay speaks for
        itself. What we say through another connection is our own.
        """
        who = Identity(event.nick, event.user or "", event.host or "", event.account)
        is_relayed = is_said_to_all(event) and matches_any(who, self._settings.relays, network.fold)
        if who.mask in (str(each.session.source) for each in self._networks.values()):
            event = replace(event, own=True)  # another nick of ours, on another of our connections
        text = _ZERO_WIDTH.sub("", sanitize(event.text)) if is_relayed else ""
        match = _BRIDGED.fullmatch(text)
        nick = re.sub(r"\s+", "_", match["nick"].strip().lstrip("@+%&~")) if match else ""
        if match and _BRIDGED_NICK.fullmatch(nick):
            # Account and bot tag are the relay's, and say nothing of the person.
            who = Identity(nick, who.user, who.host, None, bridged=True)
            event = replace(event, nick=nick, text=match["text"], account=None, bot=False)
        other = who
        if event.own and event.channel is None:  # our private message: the room of its recipient
            known = network.roster.person(event.target)
            other = identity_of(known) if known else Identity(event.target)
        return Heard(network, event, who, place_of(event, other, network.fold))

    def take_trigger(self, heard: Heard, prefix: str) -> ParsedCommand | None:
        """Return the command in an event, None if there is none or its author is not heard.

        Call it once per event, as it also feeds the detector of bot loops.
        """
        network, event = heard.network, heard.event
        if event.channel is None and network.fold(event.target) != network.fold(network.nick):
            return None  # addressed to all users of a server (`$*`), or to somebody else
        if not self.should_process(heard):
            return None
        asked = self.parse_words(heard, prefix)
        person, room = person_key(heard), (network.name, network.fold(event.channel or ""))
        if not asked:
            if is_said_to_all(event):
                self._loop_detector.note_line(room, person)
            return None
        # Another bot addresses us by nick; it does not know the prefix.
        by_prefix = event.text.strip().startswith(prefix)
        if not by_prefix and self._loop_detector.record_and_check(person, event.text, room):
            _log.info("irc.loop_ended", network=network.name)
            return replace(asked, too_fast=True)
        return asked

    def parse_words(self, heard: Heard, prefix: str) -> ParsedCommand | None:
        """Return the command in an event by its text alone, whatever its author and time."""
        network, event = heard.network, heard.event
        # RFC 2812, section 3.3.2: a NOTICE must never be answered automatically.
        if event.type != "PRIVMSG":
            return None
        # People go on calling us by the configured nick while we have another.
        nicks = network.session.nick, network.settings.nick
        private = event.channel is None
        said = sanitize(event.text)  # some clients colour the nicks that they complete
        return parse_command(said, prefix=prefix, nicks=nicks, private=private)

    def should_process(self, heard: Heard) -> bool:
        """Return whether an event is live, and its author somebody whom we answer: neither a bot,
        by its mark or our settings, nor a service, nor ignored. The bridged are never bots."""
        network, event, who = heard.network, heard.event, heard.who
        if event.own or event.batch_type:
            return False
        fold, bots = network.fold, (*self._settings.bots, *self._settings.relays)
        # Here a bare nick counts too: whoever takes a listed one only loses, as bots get no answer.
        is_listed = fold(who.nick) in map(fold, bots) or matches_any(who, bots, fold)
        if not who.bridged and (event.bot or is_listed):
            return False
        return is_person(who, fold) and not self.is_ignored(network, who)

    def request(self, heard: Heard, words: str, pending_event: PendingEvent) -> IrcRequest:
        """Build the request for a command with `words`."""
        event, who, status = heard.event, heard.who, status_of(heard.event)
        return IrcRequest(
            network=heard.network,
            place=heard.place,
            recipient=who.nick if event.channel is None else status + event.channel,
            private=event.channel is None or status != "",
            who=who,
            words=words,
            scope=scope_of(heard.place, self._settings.channel_groups),
            pending_event=pending_event,
            admin=self.is_admin(heard.network, who),
            person=self.key_of_person(heard.network, who),
        )

    def key_of_person(self, network: Network, who: Identity) -> str:
        """Return the key of a person's conversations and memories, as a nick is no identity.

        It is the name of their private room. Whoever was seen to change nick keeps the key, unless
        they have had one under the new nick before. Of a bridged person only the name is known.
        """
        fold = network.fold
        if who.bridged:
            return who.key(fold)
        room, before = who.room(fold), replace(who, nick=network.roster.first_nick(who.nick))
        key = self._keys.setdefault((network.name, room), before.room(fold))
        if len(self._keys) > _MAX_PEOPLE:
            self._keys.popitem(last=False)
        return key

    def try_acquire(self, request: IrcRequest) -> bool:
        """Apply the rate limits of the person, then of the channel; return whether a command may
        run."""
        room = (request.network.name, request.network.fold(request.place.channel))
        return self._people.try_acquire(person_key(request)) and self._rooms.try_acquire(room)

    def should_notify(self, request: IrcRequest) -> bool:
        """Return whether to tell the author of the rate limit: at most once a minute."""
        return self._people.should_notify(person_key(request))

    def should_explain(self, request: IrcRequest) -> bool:
        """Return whether to explain to the author that this is no command: at most once a minute,
        counted by `payer_of`, so that another nick does not help."""
        return self._explained.should_notify(payer_of(request.network, request.who))

    def note_reply(self, network: Network, name: str) -> None:
        """Record a message to a person, for the detector of bot loops."""
        self._loop_detector.note_reply((network.name, network.fold(name)))

    def is_admin(self, network: Network, who: Identity) -> bool:
        """Return whether a person is an admin. Bridged people never are: anybody can have their
        nick."""
        return not who.bridged and matches_any(who, network.admins, network.fold)

    def is_ignored(self, network: Network, who: Identity) -> bool:
        """Return whether a person who is no admin is ignored, by the settings or a command."""
        masks = [*self._settings.ignore, *self._live.ignored.get(network.name, ())]
        return matches_any(who, masks, network.fold) and not self.is_admin(network, who)


def person_key(asker: Heard | IrcRequest) -> tuple[str, str]:
    """Return the network and the folded name of whoever asks: the key of their rate limits."""
    return asker.network.name, asker.network.fold(asker.who.name)


def payer_of(network: Network, who: Identity) -> str:
    """Return the key under which a person's usage is counted.

    It is the account, else user name and host, as a nick is changed in a moment. Of a bridged
    person only the nick is known.
    """
    if who.account:
        return f"{network.name}/~{network.fold(who.account)}"
    host = f"{who.user}@{who.host}".lower()
    return f"{network.name}/{network.fold(who.name) if who.bridged or not who.host else host}"


def identity_of(member: Member) -> Identity:
    """Return the identity of a channel member."""
    return Identity(member.nick, member.user or "", member.host or "", member.account)


def is_person(who: Identity, fold: Casemap) -> bool:
    """Return whether `who` can be a person: no server, service or bouncer module."""
    if who.bridged:
        return True
    # A server's prefix is its name alone, without user and host (RFC 2812, section 2.3.1).
    return is_nick(who.nick) and bool(who.host) and not matches_any(who, SERVICES, fold)


def without_highlight(nick: str) -> str:
    """Return a nick with a zero-width space in it, so that it does not highlight its owner."""
    return f"{nick[:1]}{NICK_GAP}{nick[1:]}"


@dataclass(slots=True)
class _Exchange:
    """The time of our last reply to a person, their `quick` lines in a row, their last line."""

    answered: float
    quick: int = 0
    last: float = 0.0


class BotLoopDetector:
    """A detector of loops with other bots, whatever they call themselves.

    It finds authors who keep answering us faster than anybody types, and those who go on for an
    hour while nobody else in the room says anything except to us. Both tables are LRU caches.
    `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._people: OrderedDict[Hashable, _Exchange] = OrderedDict()
        self._turns: OrderedDict[tuple[Hashable, Hashable], deque[float]] = OrderedDict()

    def note_reply(self, person: Hashable) -> None:
        """Record that we have said something to a person."""
        exchange = self._people.setdefault(person, _Exchange(0.0))
        exchange.answered = self._clock()
        self._people.move_to_end(person)
        if len(self._people) > _MAX_PEOPLE:
            self._people.popitem(last=False)

    def note_line(self, room: Hashable, person: Hashable) -> None:
        """Record a line that was not for us, which resets the turn counts of the others there."""
        for other in [each for each in self._turns if each[0] == room and each[1] != person]:
            del self._turns[other]

    def record_and_check(self, person: Hashable, text: str, room: Hashable) -> bool:
        """Record a line addressed to us; return True if it is part of a loop."""
        now = self._clock()
        times = self._turns.setdefault((room, person), deque(maxlen=MAX_TURNS))
        self._turns.move_to_end((room, person))
        if len(self._turns) > _MAX_PEOPLE:
            self._turns.popitem(last=False)
        if len(times) == MAX_TURNS and now - times[0] < TURNS_WINDOW:
            return True  # and not counted, so that turns are free again as old ones age out
        times.append(now)
        exchange = self._people.get(person)
        if exchange is None:
            return False
        if exchange.quick >= QUICK_TURNS:
            if now - exchange.last < QUIET_SECONDS:
                exchange.last = now  # each further line extends the silence that is asked for
                return True
            exchange.quick = 0
        # The least time that a person needs: to read a reply, or to type this line. Lines that were
        # sent together are no replies to each of ours.
        quick = now - exchange.answered < max(_READING_TIME, len(text) / _TYPING_SPEED)
        is_reply = exchange.answered >= exchange.last
        exchange.quick = exchange.quick + 1 if quick and is_reply else 0
        exchange.last = now
        return exchange.quick >= QUICK_TURNS


def status_of(event: IrcEvent) -> str:
    """Return the STATUSMSG symbols of a message to part of a channel, as "@" for `@#c`; else ""."""
    if event.channel is None or event.type not in ("PRIVMSG", "NOTICE", "ACTION"):
        return ""
    # The target is the name of the channel behind the symbols.
    return event.target[: -len(event.channel)]


def is_said_to_all(event: IrcEvent) -> bool:
    """Return whether an event is a line to a whole channel."""
    is_line = event.channel is not None and event.type in ("PRIVMSG", "ACTION")
    return is_line and not status_of(event)


def place_of(event: IrcEvent, other: Identity, fold: Callable[[str], str]) -> Place:
    """Return the place of an event: its channel, its status room, or `other`'s private room."""
    if event.channel is None:
        return Place(event.network, other.room(fold))
    if status := status_of(event):
        return Place(event.network, status_room(status, event.channel))
    return Place(event.network, event.channel)


def fold_place(network: Network, channel: str) -> Place:
    """Return the place of a channel with its name folded, so that equal places are equal."""
    return Place(network.name, network.fold(channel))


def room_key(place: Place, fold: Callable[[str], str]) -> str:
    """Return the key that all conversations in a place share, `network/place`."""
    # `Identity.room` has folded the name of a private room already, part by part.
    is_personal = channel_of_room(place.channel) == place.channel and is_private(place.channel)
    name = place.channel if is_personal else fold(place.channel)
    return f"{place.network}/{escape_name(name)}"


def to_log_event(event: IrcEvent, place: Place) -> Event:
    """Convert an IRC event to a log event of `place`; the parameters of key changes are masked."""
    renamed = event.type == "NICK"
    return Event(
        network=event.network,
        channel=place.channel,
        type=EventType(event.type),
        time=event.time,
        nick=event.nick,
        user=event.user or "",
        host=event.host or "",
        account=event.account,
        target=event.text if renamed else event.target if event.type == "KICK" else "",
        text="" if renamed else without_key(event.text) if event.type == "MODE" else event.text,
        msgid=event.msgid,
        own=event.own,
    )


def without_key(modes: str) -> str:
    """Mask all parameters of a mode change with "*" if it sets or removes a channel key (`k`).

    Which parameter belongs to which letter depends on the server's CHANMODES.
    """
    letters, *parameters = modes.split() or [""]
    return " ".join([letters, *("*" for _ in parameters)]) if "k" in letters else modes


def scope_of(place: Place, groups: Iterable[Iterable[str]]) -> Scope:
    """Return the scope of readers in `place`: the place itself, and the channels of its groups.

    Groups name "network/#channel", or "#channel" on the network of `place`. Private places belong
    to no group, even if one names them.
    """
    places = {place}
    for group in () if is_private(place.channel) else groups:
        named = [
            Place(*name.split("/", 1)) if "/" in name else Place(place.network, name)
            for name in group
        ]
        own = place.network, place.channel.lower()
        if any((each.network, each.channel.lower()) == own for each in named):
            places.update(each for each in named if not is_private(each.channel))
    return Scope(frozenset(places))
