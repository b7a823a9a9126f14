"""Speaking unasked: a question to everybody that nobody answers is put to the model.

The rule needs no model: a person has asked a question on a public channel and had no reply for five
minutes. The model is then asked whether it knows the answer, and may stay silent; either way a
pause of half an hour follows on that channel.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from harnesses.core.services.question_tools import Door
from harnesses.core.services.shared_log import LoggedLine, is_public, room_name
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from llm.messages.message import NO_ASKER
from storage.chat_log.event import Event, PendingEvent, Place, Scope
from storage.chat_log.event_table import Query
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.queues.unasked import Silence, Silences
from terrarium.clock import Clock

ANSWER_DELAY = timedelta(minutes=5)
"""The time after which a question that nobody has answered may be answered."""

COOLDOWN = timedelta(minutes=30)
"""The minimum time between two unasked runs of the model on one channel."""

DAILY_TOKENS = 1_000_000
"""The tokens used since midnight UTC, for any purpose, from which on people are left alone."""

_NEVER = datetime.fromtimestamp(0, UTC)
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
_ADDRESS = re.compile(r"@?[^\s:,]{1,64}[:,]\s")
_WORD = re.compile(r"[^\s,:;.!?()<>\"']+")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, eq=False)
class OpenQuestion:
    """A question to everybody on a channel. `nick` is folded, `line` on its way into the log."""

    place: Place
    nick: str
    time: datetime
    line: PendingEvent

    async def event(self, log: ChatLog) -> Event | None:
        """Return the question as the model may see it: None if it has been erased or is not in the
        log, or if its author has opted out since. Raises StorageError."""
        event_id = await self.line.wait_visible()
        wanted = Query(scope=Scope.from_places(self.place), ids=frozenset({event_id}), limit=1)
        (found,) = await log.for_model(wanted) if event_id else ([],)
        return found[0] if found else None


class UnaskedSpeech:
    """The open questions of all channels, one at a time on each.

    `tokens_today` returns the tokens that the tendril has used today; `ask_model` never raises.
    Call `restore` first: the pauses survive a restart, the open questions do not.
    """

    def __init__(
        self,
        store: Silences,
        clock: Clock,
        tokens_today: Callable[[], int],
        ask_model: Callable[[OpenQuestion], Awaitable[object]],
    ) -> None:
        self._store, self._clock = store, clock
        self._tokens_today, self._ask_model = tokens_today, ask_model
        self._silences: dict[Place, Silence] = {}
        self.open: dict[Place, OpenQuestion] = {}
        # All wait for the same time, so the order of asking is that of their ends.
        self._waiting: asyncio.Queue[OpenQuestion] = asyncio.Queue()

    async def restore(self) -> None:
        """Restore the stored pauses. Raises StorageError."""
        self._silences = await self._store.all()

    def silence(self, place: Place) -> Silence:
        """Return the silence of a place."""
        return self._silences.get(place, Silence(_NEVER, muted=False))

    def on_line(
        self, line: LoggedLine, *, asked: bool = False, fold: Callable[[str], str] = str.lower
    ) -> None:
        """Observe what a person says on a channel, with `asked` to us: whoever asks us has their
        answer from there, and no other line is a reply or a question to everybody."""
        place, nick, now = line.place, fold(line.who.nick), self._clock.now()
        is_addressed = _ADDRESS.match(line.text) is not None
        has_mark = _QUESTION_MARK.search(line.text) is not None
        asks = not is_addressed and (has_mark or _ASKS.match(line.text) is not None)
        if question := self.open.get(place):
            is_own = question.nick == nick
            # A reply names the asker, or names and asks nobody.
            is_named = question.nick in map(fold, _WORD.findall(line.text))
            is_reply = not is_own and (is_named or not (is_addressed or asks))
            if is_own if asked else is_reply:
                del self.open[place]
        silence = self.silence(place)
        rests = silence.muted or now - silence.asked < COOLDOWN
        if asks and not (asked or rests or place in self.open):
            self.open[place] = OpenQuestion(place, nick, now, line.pending)
            self._waiting.put_nowait(self.open[place])

    async def run(self) -> None:
        """Put each question to the model once its time has come, until cancelled."""
        while True:
            question = await self._waiting.get()
            await self._clock.sleep_until(question.time + ANSWER_DELAY)
            if self.open.get(question.place) is not question:
                continue
            del self.open[question.place]
            if self._tokens_today() >= DAILY_TOKENS:
                continue
            # Stored first: after a crash the model must not be asked twice.
            await self._put(question.place, Silence(self._clock.now(), muted=False))
            _log.info("attention.woke", network=question.place.network)
            await self._ask_model(question)

    def drop(self, place: Place, nick: str) -> None:
        """Forget the open question of a person of this folded nick."""
        if (question := self.open.get(place)) and question.nick == nick:
            del self.open[place]

    async def mute(self, place: Place, *, muted: bool) -> None:
        """Stay silent in a place until that is taken back."""
        self.open.pop(place, None)
        await self._put(place, replace(self.silence(place), muted=muted))

    async def _put(self, place: Place, silence: Silence) -> None:
        self._silences[place] = silence
        try:
            await self._store.put(place, silence)
        except StorageError as error:  # then it counts until a restart
            _log.error("attention.not_kept", error=str(error))


def about_question(question: Event) -> str:
    """Return the prompt about a question that nobody has answered."""
    return (
        f"{question.nick} asked all a few minutes ago, and nobody has answered: {question.text}\n"
        "If you know the answer, give it in a sentence or two. If there is nothing useful to say,"
        ' answer only {"response": ""}; that is often best.'
    )


class AttentionMixin(Tendril):
    """A tendril that may speak unasked in its public rooms, using `say`.

    Pass every line of a room to `listen`. A question that nobody has answered for five minutes is
    put to the model, which may stay silent; either way a pause of half an hour follows in that
    room, also over a restart.
    """

    unasked: UnaskedSpeech

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open everything, and restore the pauses. Raises StorageError and ConfigError."""
        async with super().open_resources():
            self.unasked = UnaskedSpeech(
                Silences(self.database), self.clock, self.accounting.today, self._speak_unasked
            )
            await self.unasked.restore()
            yield

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the coroutines to run concurrently with `serve`, this one included."""
        return [*super().background(), self.unasked.run()]

    def listen(self, line: LoggedLine, *, asked: bool = False) -> None:
        """Observe a line in a room. Private and unlogged lines are ignored.

        Set `asked` if the line is a question to us: it gets its answer by a turn.
        """
        if is_public(line.place) and line.is_logged:
            self.unasked.on_line(line, asked=asked)

    def unasked_request(self, question: Event) -> TurnRequest:
        """Return the turn request for a question that nobody has answered. Override it to change
        the prompt or the tools."""
        place = Place(question.network, question.channel)
        return TurnRequest(
            conversation=room_name(place),
            who=NO_ASKER,
            text=about_question(question),
            tools=self.tools_for(Door(log=self.log.tools_within(Scope.from_places(place)))),
            values={"room": place.channel},
            priority="background",
            trigger="proactive",
            keeps=False,
        )

    async def _speak_unasked(self, question: OpenQuestion) -> None:
        async def answer() -> TurnResult:
            event = await question.event(self.log.chat_log)
            if event is None:
                return TurnResult("")

            async def deliver(result: TurnResult) -> bool:
                # An apology is not said: nobody has asked. Silence counts as delivered.
                return not (result.ok and result.text) or await self.say(
                    question.place, result.text
                )

            return await self.turn(replace(self.unasked_request(event), deliver=deliver))

        await self.turns.catch_errors(answer)
