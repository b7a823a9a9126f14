"""Manners: relays are heard as those they speak for, bots are not answered, a kick is heeded."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.identity import Fold, Identity, matches_any
from harnesses.irc.settings import IrcSettings

QUICK_TURNS = 3
"""Lines in a row that came faster than anybody types; the last of them is not answered."""

QUIET = 60.0
"""Seconds of silence after which somebody who wrote too fast is answered again."""

MOST_KICKS, KICKS_WITHIN = 3, 3600.0
"""Kicks in so many seconds after which we do not come back."""

_TYPED = 15.0  # characters that a fast typist writes in a second
_READ = 1.0  # seconds that even the shortest answer takes to read
_KEPT = 1_000  # people
_BRIDGED = re.compile(r"\s*[<\[(](?P<nick>[^\s>\])][^>\])]{0,63})[>\])]\s+(?P<text>.+)", re.DOTALL)
_FORMATTING = re.compile(
    r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|[\x00-\x09\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e]"
)


def resolve_relay(event: IrcEvent, settings: IrcSettings, fold: Fold) -> tuple[IrcEvent, Identity]:
    """The event as of the person whose words a configured relay repeats, and who that is.

    A nick with blanks in it gets underscores: it must not look like two people.
    """
    who = Identity.from_event(event)
    if event.type not in ("PRIVMSG", "ACTION") or not matches_any(who, settings.relays, fold):
        return event, who
    match = _BRIDGED.fullmatch(_FORMATTING.sub("", event.text))
    if not match:
        return event, who
    nick = re.sub(r"\s+", "_", match["nick"].strip().lstrip("@+%&~"))
    person = Identity(nick, who.user, who.host, None, bridged=True)
    return replace(event, nick=nick, text=match["text"], account=None, bot=False), person


def is_bot(event: IrcEvent, who: Identity, settings: IrcSettings, fold: Fold) -> bool:
    """Whether a bot said it: the server or the configuration says so. A bridged person is none."""
    if who.bridged:
        return False
    bots = (*settings.bots, *settings.relays)
    nicks = {fold(entry) for entry in bots}
    return event.bot or fold(who.nick) in nicks or matches_any(who, bots, fold)


class KickCounter:
    """How often we were put out of places. `clock` returns seconds and never goes back."""

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
    """What we last said to somebody, and how they answered."""

    answered: float
    quick: int = 0
    last: float = 0.0


class BotLoopDetector:
    """Finds those who answer us faster than anybody types: another bot, whatever it calls itself.

    `clock` returns seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._people: OrderedDict[Hashable, _Exchange] = OrderedDict()

    def note_reply(self, person: Hashable) -> None:
        """We have said something to a person."""
        exchange = self._people.setdefault(person, _Exchange(0.0))
        exchange.answered = self._clock()
        self._people.move_to_end(person)
        if len(self._people) > _KEPT:
            self._people.popitem(last=False)

    def is_loop(self, person: Hashable, text: str) -> bool:
        """Whether these words, addressed to us, go round in a loop that has to end."""
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
