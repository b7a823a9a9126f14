"""Speaking unasked: signals, the beat that weighs them, and what wakes the model.

A signal is a reason to speak in a public room. Each is felt as a change against what is there
already (Weber and Fechner), so repeated ones count less and less, and those that have woken the
model are taken as known until they fade. One beat a second adds up what each room's signals weigh;
it needs no model. What passes the threshold, which rises as the tokens of the day are used up,
wakes the model with its reasons. By default only one kind weighs anything: a question to everybody
that nobody has answered for five minutes.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, TypeVar

import structlog

from harnesses.core.services.question_tools import Door
from harnesses.core.services.shared_log import LoggedLine, is_public, room_name
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from llm.messages.message import NO_ASKER
from storage.chat_log.event import Event, Place, Scope
from storage.chat_log.event_table import Query
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.queues.pastes import Pastes
from storage.queues.unasked import LIFETIME, WOKE, Signal, SignalKind, Signals, Silence, Silences
from terrarium.clock import Clock

ANSWER_DELAY = timedelta(minutes=5)
"""The time after which a question that nobody has answered may be answered."""

COOLDOWN = timedelta(minutes=30)
"""The minimum time between two unasked runs of the model in one room; a signal fades in it."""

DAILY_TOKENS = 1_000_000
"""The fresh tokens since midnight UTC, for any purpose, from which on people are left alone."""

_NEVER = datetime.fromtimestamp(0, UTC)
_TALK = timedelta(minutes=15)  # for which two people who have addressed one another are in a talk
_MAX_OTHERS = 8  # lines of other talks, after which a line that addresses nobody belongs to one
_REACTION = timedelta(minutes=3)
_MAX_OPEN, _MAX_FELT, _MAX_PEOPLE = 20, 100, 500  # of a room
_LOOK = 10.0  # seconds between two looks for signals of other tendrils
_QUIET = 8  # times the usual pause, and at least half an hour
_QUESTION_MARK = re.compile(r"\?(?=\s|$)")  # at the end of a word: addresses have a "?" inside
# How questions begin that people end without a mark, after a greeting. What an exclamation or a
# clause begins with too ("what a day", "when it rains") needs the verb of a question behind it.
_ASKS = re.compile(
    r"(?:(?:hi|hey|hello|hallo|so|ok|and|but|und|aber)\b(?:[\s,!.:]+(?:all|folks|everyone))?[\s,!.:]+)?"
    r"(?:(?:what|how|where|when|who|why|which(?! is))(?! (?:i|you|we|they|he|she|it)\b) "
    r"(?:\w+ ){0,2}?(?:is|are|was|were|do|does|did|can|could|should|would|will|has|have|knows?)\b"
    r"|(?:how|where) to\b|(?:what|how|where|who)'?s\b|(?:is|are) there\b"
    r"|(?:does|do|did|has|have|is|can|could|would) (?:any|some)(?:one|body)\b"
    r"|any(?:one|body) (?:knows?|ha[sv]e?|got|here|around|seen|tried|using|familiar)\b"
    r"|(?:wie|was|wo|wann|wer|warum|wieso|womit|wohin|welche[rsmn]?) (?:(?:\w+ ){1,2}?(?:ich|man"
    r"|wir|ihr|es|das|der|die)|(?:\w+ )?(?:ist|sind|hat|haben|kann|geht|kommt|weiß))\b"
    r"|(?:weiß|weiss|kennt|hat|kann|ist|gibt|hätte) (?:\w+ )?(?:jemand|wer|man|es)\b)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"@?([^\s:,]{1,64})[:,]\s")
_WORD = re.compile(r"[^\s,:;.!?()<>\"']+")

_REASONS: Mapping[SignalKind, str] = {
    "question": "{nick} asked all a few minutes ago, and nobody has answered: {text}",
    "mention": "{nick} spoke of you: {text}",
    "reaction": "{nick} said after you had spoken: {text}",
}

_ADVICE = """
If you know the answer, give it in a sentence or two. If there is nothing useful to say, answer only
{"response": ""}; that is often best."""

T = TypeVar("T")
Reasons = Sequence[tuple[Signal, Event | None]]
"""Signals, with their lines as the model may see them."""

_log = structlog.get_logger()


def change(signals: Iterable[Signal], time: datetime) -> float:
    """Return how strong the change by signals of one kind is felt at a time: 1 is a doubling.

    Each fades in the second half of `COOLDOWN`. Those that have ended are the level that is known.
    """
    value = level = 0.0
    for each in signals:
        left = min(1.0, max(0.0, 2 - 2 * (time - each.time) / COOLDOWN))
        left *= each.time <= time
        value += left
        level += left if each.ended is not None and each.ended <= time else 0.0
    return math.log2((1 + value) / (1 + level))


def pressure(signals: Sequence[Signal], weights: Mapping[SignalKind, float], at: datetime) -> float:
    """Return what the signals of a room weigh together; from the threshold, 2 less the energy, on
    they wake the model."""
    kinds = groupby(sorted(signals, key=lambda each: each.kind), lambda each: each.kind)
    return sum(weights.get(kind, 0) * change(group, at) for kind, group in kinds)


@dataclass(frozen=True, slots=True)
class Wake:
    """The reasons for which the model is woken in a room, the question first."""

    place: Place
    signals: Sequence[Signal]

    async def reasons(self, log: ChatLog) -> Reasons:
        """Return the signals and their lines, without those whose line has been erased or is not in
        the log, or whose author has opted out since. Raises StorageError."""
        found: list[tuple[Signal, Event | None]] = []
        for each in self.signals:
            event_id = await each.line.wait_visible() if each.line else each.event_id
            scope, ids = Scope.from_places(self.place), frozenset([event_id or 0])
            lines, *_ = await log.for_model(Query(scope=scope, ids=ids, limit=1))
            is_ours = each.line is None and event_id is None
            found += [(each, line) for line in ([None] if is_ours else lines)]
        return found


@dataclass(slots=True)
class _Question:
    signal: Signal
    others: int = 0  # lines of other talks since


@dataclass(slots=True)
class _Room:
    """The state of a room: the open question of each person, the signals that have not faded,
    with whom each person last talked, and when somebody, or we unasked, last spoke."""

    last: datetime
    usual: timedelta = timedelta()  # the pause between two lines
    spoke: datetime = _NEVER
    is_quiet: bool = False
    open: dict[str, _Question] = field(default_factory=dict)
    felt: list[Signal] = field(default_factory=list)
    talks: dict[str, tuple[datetime, str]] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        return bool(self.open or self.felt) or not self.is_quiet

    def talk(self, nick: str, other: str, now: datetime) -> None:
        self.talks.pop(nick, None)  # the latest is the last one
        self.talks[nick] = (now, other)
        if len(self.talks) > _MAX_PEOPLE:
            del self.talks[next(iter(self.talks))]


class Attention:
    """The signals of all rooms of a tendril, kept in the `database` of the log.

    `tokens_today` returns the fresh tokens that the tendril has used today, `weights` what each
    kind of signal weighs, and `own` a place as it is called here, None if it is of another tendril.
    `wake` never raises. Call `restore` first: pauses survive a restart, other signals do not.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        tokens_today: Callable[[], int],
        weights: Callable[[], Mapping[SignalKind, float]],
        wake: Callable[[Wake], Awaitable[TurnResult]],
        own: Callable[[Place], Place | None] = lambda place: place,
    ) -> None:
        self._signals, self._pauses = Signals(database), Silences(database)
        self._pastes, self._clock, self._tokens_today = Pastes(database), clock, tokens_today
        self._weights, self._wake, self._own = weights, wake, own
        self._silences: dict[Place, Silence] = {}
        self._rooms: dict[Place, _Room] = {}
        self._is_live = asyncio.Event()
        self.changed: asyncio.Queue[Signal] = asyncio.Queue()  # to be stored

    async def restore(self) -> None:
        """Restore the stored pauses. Raises StorageError."""
        self._silences = await self._pauses.all()

    def silence(self, place: Place) -> Silence:
        """Return the silence of a place."""
        return self._silences.get(place, Silence(_NEVER, muted=False))

    def is_waiting(self, place: Place) -> bool:
        """Return whether a question is open in a place."""
        return bool(place in self._rooms and self._rooms[place].open)

    @property
    def energy(self) -> float:
        """The share of the day's tokens that is left."""
        return max(0.0, 1 - self._tokens_today() / DAILY_TOKENS)

    def on_line(
        self,
        line: LoggedLine,
        *,
        asked: bool = False,
        nick: str = "",
        fold: Callable[[str], str] = str.lower,
    ) -> None:
        """Observe what a person says in a room where our folded nick is `nick`, with `asked` to us:
        whoever asks us has their answer from there, and no other line is a reply or a question to
        everybody."""
        place, who, now = line.place, fold(line.who.nick), self._clock.now()
        if self.silence(place).muted:
            return
        room = self._rooms.setdefault(place, _Room(now))
        words = set(map(fold, _WORD.findall(line.text)))
        address = _ADDRESS.match(line.text)
        to = fold(address[1]) if address else ""
        has_mark = _QUESTION_MARK.search(line.text) is not None
        asks = not address and (has_mark or _ASKS.match(line.text) is not None)
        talked, partner = room.talks.get(who, (_NEVER, ""))
        for asker, question in list(room.open.items()):
            if asker == who:
                is_over = asked or to in room.talks  # they are in a talk
            elif asked:
                continue
            else:
                # A reply names the asker, or names and asks nobody and is not of another talk.
                in_talk = now - talked < _TALK and partner not in ("", asker)
                of_another = in_talk or question.others >= _MAX_OTHERS
                is_over = asker in words or not (address or asks or of_another)
                question.others += 1
            if is_over:
                self._end(room.open.pop(asker).signal, "answered")
        if to in room.talks:
            room.talk(who, to, now)
            room.talk(to, who, now)
        elif who not in room.talks:
            room.talk(who, "", now)
        signal = Signal(now, "question", place, nick=who, line=line.pending)
        if asks and not asked and who not in room.open and len(room.open) < _MAX_OPEN:
            room.open[who] = _Question(signal)
        elif nick in words and not asked:
            self.feel(replace(signal, kind="mention"))
        if now - room.spoke < _REACTION and not asked:
            room.spoke = _NEVER
            self.feel(replace(signal, kind="reaction"))
        room.usual += (now - room.last - room.usual) / _QUIET
        room.last, room.is_quiet = now, False
        self._is_live.set()

    def feel(self, signal: Signal) -> None:
        """Take a signal in, which counts from the next beat on, unless there are too many."""
        signal.outcome = "felt"
        room = self._rooms.setdefault(signal.place, _Room(signal.time, is_quiet=True))
        if len(room.felt) >= _MAX_FELT and signal.kind != "question":
            return
        room.felt.append(signal)
        self.changed.put_nowait(signal)
        self._is_live.set()

    def beat(self) -> list[Wake]:
        """Weigh what is felt in each room; return the rooms in which it wakes the model now, which
        begins their pause."""
        now, energy, weights, wakes = self._clock.now(), self.energy, self._weights(), []
        for place, room in self._rooms.items():
            rested = self.silence(place).asked + COOLDOWN
            for asker, question in list(room.open.items()):
                signal = question.signal
                if now - signal.time >= ANSWER_DELAY:
                    del room.open[asker]
                    if signal.time < rested:
                        self._end(signal, "in the pause")
                    else:
                        signal.time = now
                        self.feel(signal)
            pause = now - room.last
            if not room.is_quiet and pause >= max(COOLDOWN, _QUIET * room.usual):
                room.is_quiet = True
                about = f"nobody has spoken for {pause // timedelta(minutes=1)} minutes"
                self.feel(Signal(now, "silence", place, about))
            questions = [each for each in room.felt if not each.ended and each.kind == "question"]
            if energy and now >= rested and pressure(room.felt, weights, now) >= 2 - energy:
                others = [
                    each
                    for each in room.felt
                    if not each.ended and each.kind != "question" and weights.get(each.kind)
                ]
                reasons, questions = [*questions[:1], *others], questions[1:]
                self._silences[place] = Silence(now, muted=False)
                wakes.append(Wake(place, reasons))
                for each in reasons:
                    self._end(each, WOKE if each is reasons[0] else "a further reason")
            for each in questions:  # their time is now, or never
                self._end(each, "not strong enough" if energy else "no tokens left")
            gone = [each for each in room.felt if now - each.time >= COOLDOWN]
            room.felt = [each for each in room.felt if each not in gone]
            for each in gone:
                if not each.ended:
                    self._end(each, "faded")
        return wakes

    async def run(self) -> None:
        """Beat once a second while something is felt, and wake the model, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store())
            tasks.create_task(self._feel_others())
            while True:
                await self._is_live.wait()
                for wake in self.beat():
                    # Stored first: after a crash the model must not be asked twice.
                    await self._keep(self._pauses.put(wake.place, self.silence(wake.place)))
                    _log.info("attention.woke", network=wake.place.network)
                    await self._note(wake, await self._wake(wake))
                if not any(room.is_live for room in self._rooms.values()):
                    self._is_live.clear()
                await self._clock.sleep(1)

    def drop(self, place: Place, nick: str) -> None:
        """Forget what a person of this folded nick has asked and said."""
        if room := self._rooms.get(place):
            room.open.pop(nick, None)
            room.felt = [each for each in room.felt if each.nick != nick]

    def note_spoken(self, place: Place) -> None:
        """Note that we have spoken unasked in a place: the next line there is a reaction."""
        if room := self._rooms.get(place):
            room.spoke = self._clock.now()

    async def mute(self, place: Place, *, muted: bool) -> None:
        """Stay silent in a place until that is taken back."""
        self._rooms.pop(place, None)
        self._silences[place] = replace(self.silence(place), muted=muted)
        await self._keep(self._pauses.put(place, self._silences[place]))

    def _end(self, signal: Signal, outcome: str) -> None:
        signal.outcome, signal.ended, signal.energy = outcome, self._clock.now(), self.energy
        self.changed.put_nowait(signal)

    async def _note(self, wake: Wake, result: TurnResult) -> None:
        """Keep what the model has said, or would have said, for as long as the signals."""
        outcome, first = "an answer" if result.text else "nothing to say", wake.signals[0]
        if result.ok and result.text:
            lines = result.quotes | {each.event_id for each in wake.signals if each.event_id}
            words = (wake.place, first.nick, result.text, (), LIFETIME, lines)
            first.paste = await self._keep(self._pastes.add(*words)) or ""
        first.outcome = f"{WOKE}: {outcome if result.ok else 'no answer'}"
        self.changed.put_nowait(first)

    async def _store(self) -> None:
        while True:
            signal = await self.changed.get()
            if signal.line and signal.event_id is None:
                signal.event_id = await self._keep(signal.line.wait_visible())
            if not signal.line or signal.event_id:  # else the line is not in the log
                await self._keep(self._signals.put(signal))

    async def _feel_others(self) -> None:
        """Feel the signals that tendrils have for rooms of this one."""
        while True:
            await self._clock.sleep(_LOOK)
            since = self._clock.now() - COOLDOWN
            for signal in await self._keep(self._signals.unfelt(since)) or ():
                if (place := self._own(signal.place)) and not self.silence(place).muted:
                    signal.place = place
                    self.feel(signal)
                    await self._keep(self._signals.put(signal))  # so that it is felt once

    async def _keep(self, storing: Awaitable[T]) -> T | None:
        try:
            return await storing
        except StorageError as error:  # then it counts until a restart
            _log.error("attention.not_kept", error=str(error))
            return None


def about_reasons(reasons: Reasons) -> str:
    """Return the prompt about the reasons for which the model was woken."""
    told = (
        _REASONS.get(each.kind, "{nick}: {text}").format(nick=line.nick, text=line.text)
        if line
        else f"Something has happened here: {each.about}."
        for each, line in reasons
    )
    return "\n".join(told) + _ADVICE


class AttentionMixin(Tendril):
    """A tendril that may speak unasked in its public rooms, using `say`.

    Pass every line of a room to `listen`. A question that nobody has answered for five minutes is
    put to the model, which may stay silent; either way a pause of half an hour follows in that
    room, also over a restart. Other signals (`signal`) weigh what `[agent] attention` says.
    """

    attention: Attention

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open everything, and restore the pauses. Raises StorageError and ConfigError."""
        async with super().open_resources():
            self.attention = Attention(
                self.log.database,
                self.clock,
                self.accounting.fresh_today,
                lambda: self.agent.signal_weights,
                self._speak_unasked,
                lambda place: place if place.network == self.log.network else None,
            )
            await self.attention.restore()
            yield

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the coroutines to run concurrently with `serve`, this one included."""
        return [*super().background(), self.attention.run()]

    def listen(self, line: LoggedLine, *, asked: bool = False, nick: str = "") -> None:
        """Observe a line in a room where we are called `nick`. Private and unlogged lines are
        ignored.

        Set `asked` if the line is a question to us: it gets its answer by a turn.
        """
        if is_public(line.place) and line.is_logged:
            self.attention.on_line(line, asked=asked, nick=nick.lower())

    def unasked_request(self, place: Place, reasons: Reasons) -> TurnRequest:
        """Return the turn request for the reasons to speak in a place, with their lines. Override
        it to change the prompt or the tools."""
        return TurnRequest(
            conversation=room_name(place),
            who=NO_ASKER,
            text=about_reasons(reasons),
            tools=self.tools_for(Door(log=self.log.tools_within(Scope.from_places(place)))),
            values={"room": place.channel},
            priority="background",
            trigger="proactive",
            keeps=False,
        )

    async def _speak_unasked(self, wake: Wake) -> TurnResult:
        async def answer() -> TurnResult:
            reasons = await wake.reasons(self.log.chat_log)
            if not reasons:
                return TurnResult("")

            async def deliver(result: TurnResult) -> bool:
                # An apology is not said: nobody has asked. Silence counts as delivered.
                if not (result.ok and result.text):
                    return True
                if said := await self.say(wake.place, result.text):
                    self.attention.note_spoken(wake.place)
                return said

            request = self.unasked_request(wake.place, reasons)
            return await self.turn(replace(request, deliver=deliver))

        return await self.turns.catch_errors(answer)
