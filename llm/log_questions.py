"""Questions about what was said ("who said ... about ...?", "when did bob last speak?"), and quoted
log lines as their answer, without a model: each with its time, speaker and a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from llm.reading.reading import Reading
from llm.reading.spans import ALL_TIME, TimeSpan
from llm.retrieval import PERHAPS, SURE, Found, Retrieval
from storage.chat_log.event import SPOKEN, Event, EventType
from storage.chat_log.event_table import Query
from storage.passages.passages import (
    LINES_AFTER,
    PEOPLE,
    LineFilter,
    Passage,
    find_passages,
)
from storage.passages.words import asks, content_stems, rarity

MAX_QUOTED_LINES = 3
"""The most lines of an answer."""

_MAX_CANDIDATES = 60  # passages among which the newest or oldest is looked for
_MIN_COVERAGE = 0.6  # the least share of a topic's weight that a line about it has
_MAX_LINE_LENGTH = 350  # characters of a line that are quoted
_MAX_ANSWERING = 2  # lines more that are quoted while the last one is a question
_MAX_NEAR = 10  # possible answers that a model reads, at most
_MIN_NEAR_SCORE = 0.03  # their least score
_ALTERNATIVE = 0.02  # least score of a second line that is shown if the first one is not sure

_TALK = timedelta(hours=1)  # within which lines belong together
_LIKELY_MEANT = 0.25  # least score of what somebody may have meant who said none of the words

PERHAPS_LEAD = "Perhaps:"
"""The lead of lines none of which surely is the answer."""

RECENT_LEAD = "The last lines here:"
"""The lead of lines that only show the current conversation."""


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """A question to the log for lines by `nick` (None: anybody) about `topic` ("": anything) within
    a time `span`.

    `wants` is "last" or "first" if one of the lines is asked for by time, `about_time`: it asks
    when that was said. `whole_topic` includes the words that were taken for the span, as they may
    belong to the topic.
    """

    topic: str
    nick: str | None = None
    wants: str = ""
    about_time: bool = False
    span: TimeSpan = ALL_TIME
    whole_topic: str = ""


def log_question(reading: Reading, person: str) -> LogQuestion | None:
    """Return what a question asks of the log, None if it asks nothing of it. `person` is the nick
    of somebody who has spoken, "" if it names nobody."""
    slots, kind = reading.slots, reading.kind
    topic = " ".join(word for word in slots.topic.split() if word.casefold() != person.casefold())
    whole = f"{topic} {slots.span.words}".strip()
    nick, wants = person or None, slots.wants
    match kind:
        case "who_said" if topic:
            nick = None
        case "search" if topic:
            pass
        case "said_by" if person:
            wants = wants or ("" if topic else "last")
        case "when_said" if topic or person:
            wants = wants or ("" if topic and person else "last")
        case "who_said" | "said_by" | "search" if slots.span:
            topic = ""
        case _:
            return None
    return LogQuestion(topic, nick, wants, kind == "when_said", slots.span, whole)


Link = Callable[[Event], str | None]
"""Returns the address of the page that shows an event, None if there is none."""


@dataclass(frozen=True, slots=True)
class Quoting:
    """The style of quoted lines: the time `zone`, the `link` of each line, and how a `nick` is
    spelled (altered, so that nobody is highlighted)."""

    zone: tzinfo = UTC
    link: Link = lambda _: None
    nick: Callable[[str], str] = str

    def line(self, event: Event) -> str:
        """Render an event for people, on one line."""
        return self.exchange([event])

    def exchange(self, events: Sequence[Event]) -> str:
        """Render what was said one after another for people, on one line, with the time and the
        link of the first."""
        first, most = events[0], _fair_share([len(each.text) for each in events])
        address = self.link(first)
        stamp = f"[{first.time.astimezone(self.zone):%Y-%m-%d %H:%M}]"
        spoken = []
        for event in events:
            said, who = " ".join(event.text.split()), self.nick(event.nick)
            said = said if len(said) <= most else f"{said[: most - 1]}…"
            is_action = event.type is EventType.ACTION
            spoken.append(f"* {who} {said}" if is_action else f"<{who}> {said}")
        return f"{stamp} {' / '.join(spoken)}" + (f"  {address}" if address else "")

    def without(self, text: str, first: Event) -> str:
        """Return a text without the linked quote that begins with an event, if it has one."""
        head, link, rest = text.partition(f"  {self.link(first)}")
        start = head.rfind(f"[{first.time.astimezone(self.zone):%Y-%m-%d %H:%M}]")
        is_quote = link and start >= 0 and "\n" not in head[start:]
        return f"{head[:start].rstrip(' ')}{rest}" if is_quote else text


def _fair_share(lengths: Sequence[int]) -> int:
    """Return the most characters of each of some texts that together fit on a line: what the short
    ones leave is for the long ones."""
    left, most = _MAX_LINE_LENGTH, 0
    for place, length in enumerate(sorted(lengths)):
        most = left // (len(lengths) - place)
        left -= min(length, most)
    return most


PLAIN = Quoting()
"""The style with times in UTC and without links."""


@dataclass(frozen=True, slots=True)
class QuotedAnswer:
    """Log lines as an answer.

    People see the `quotes`, each on one line: an event, or what people said to each other, rendered
    by `quoting`. A model reads `events`, which include them. `lead` is a sentence before the lines,
    or the whole answer if there are none. `score` is the probability that the first line is what
    was wanted. `is_about_log`: the question asked who said what, so that the lines themselves are
    the answer.
    """

    lead: str
    quotes: tuple[tuple[Event, ...], ...] = ()
    events: tuple[Event, ...] = ()
    quoting: Quoting = PLAIN
    score: float = 0.0
    is_about_log: bool = False

    @classmethod
    def of(
        cls, lead: str, events: Sequence[Event], quoting: Quoting = PLAIN, score: float = 0.0
    ) -> QuotedAnswer:
        """Return the answer that shows each of some events on a line of its own."""
        return cls(lead, tuple((each,) for each in events), tuple(events), quoting, score)

    @property
    def shown(self) -> tuple[Event, ...]:
        """The events that people see."""
        return tuple(event for quote in self.quotes for event in quote)

    @property
    def is_sure(self) -> bool:
        """True if the first line is likely the answer."""
        return bool(self.quotes) and self.lead not in (PERHAPS_LEAD, RECENT_LEAD)

    def evidence(self, question: str, answer: str) -> tuple[str, ...]:
        """Return the lines to show below the `answer` of a small model, which may be wrong.

        This is the line that surely answers the question, or else the nearest lines, preceded by
        the one that the model took most of its words from.
        """
        if self.lead == RECENT_LEAD:
            return ()
        if self.is_sure:
            return self.lines[:1]
        # What the answer did not copy from the question shows its source; rare words weigh more.
        told = content_stems(answer) - content_stems(question)
        shared = {
            self.quoting.line(event): sum(map(rarity, told & content_stems(event.text)))
            for event in self.events
        }
        source = max(shared, key=shared.__getitem__, default="")
        if not source or not shared[source]:
            return self.lines
        return tuple(dict.fromkeys([source, *self.lines]))[:MAX_QUOTED_LINES]

    def ids_in(self, answer: str) -> frozenset[int]:
        """Return the ids of the events that stand in `answer` as they are rendered for people."""
        quotes = (*self.quotes, *((event,) for event in self.events))
        stand = (each for each in quotes if self.quoting.exchange(each) in answer)
        return frozenset(event.id for quote in stand for event in quote)

    @property
    def lines(self) -> tuple[str, ...]:
        """The quotes, rendered for people."""
        return tuple(map(self.quoting.exchange, self.quotes))

    @property
    def text(self) -> str:
        """The answer for people, at most three lines.

        The lead shares a line with the first quote, so that it is never seen alone while a server's
        flood control delays the other lines.
        """
        lines = self.lines
        first = " ".join(filter(None, (self.lead, *lines[:1])))
        return "\n".join([first, *lines[1:]])


@dataclass(frozen=True, slots=True)
class LogAnswers:
    """Answers questions with lines that `retrieval` finds `within` a part of the log: lines before
    the one that asks (`before_id`), none of those that `line_filter` leaves out or of anybody who
    has opted out."""

    retrieval: Retrieval
    within: Query
    quoting: Quoting = PLAIN
    line_filter: LineFilter = PEOPLE

    async def answer(
        self, text: str, question: LogQuestion | None, vector: Sequence[float] | None = None
    ) -> QuotedAnswer | None:
        """Return the answer of the log to any question, None if it has none.

        A `question` about what was said always has one, even if only that nothing was found; any
        other has one if somebody said it, or may have said it: that line, and what was said around
        it, and if it is not sure, the next likely one as well. `vector` is the embedding of the
        text, if it is known. Raises Unavailable.
        """
        if question is not None:
            answer = await self.to_log(question)
            if not answer.shown and (question.nick or question.topic):
                # "what is ingrid's talk about?" may be a question about what she told of it, and
                # she need not have said "varroa" when she spoke of mites.
                found = await self._find(text, replace(self.within, nick=question.nick), vector)
                if found.passages and found.passages[0].score >= _LIKELY_MEANT:
                    best = found.passages[0]
                    lead = "" if found.is_sure and question.nick else PERHAPS_LEAD
                    return QuotedAnswer.of(lead, [best.event], self.quoting, best.score)
            return replace(answer, is_about_log=True)
        found = await self._find(text, self.within, vector)
        related = [each for each in found.passages if each.is_related]
        if not related:
            return None
        best = related[0]
        quotes = [await self._exchange(best)]
        if found.is_sure:
            return QuotedAnswer("", tuple(quotes), quotes[0], self.quoting, best.score)
        others = [each for each in related[1:] if each.alone >= _ALTERNATIVE]
        others = [each for each in others if each.event not in quotes[0]]
        other = max(others, key=lambda each: each.around, default=None)
        if best.score + (other.around if other else 0.0) < PERHAPS:
            return None
        if other:
            around = await self._exchange(other)
            quotes.append(tuple(event for event in around if event not in quotes[0]))
        near = [each.event for each in found.passages if each.score >= _MIN_NEAR_SCORE]
        events = tuple(dict.fromkeys([*(event for quote in quotes for event in quote), *near]))
        return QuotedAnswer(PERHAPS_LEAD, tuple(quotes), events, self.quoting, best.score)

    async def _find(self, text: str, within: Query, vector: Sequence[float] | None) -> Found:
        wanted = replace(within, limit=_MAX_NEAR)
        return await self.retrieval.find(text, wanted, vector=vector, line_filter=self.line_filter)

    async def _exchange(self, passage: Passage) -> tuple[Event, ...]:
        """Return a line with what it needs to be understood: the question of somebody else just
        before it, unless it has all words of what is asked; and the lines after it, unless it is
        surely the answer by itself."""
        event, log = passage.event, self.retrieval.log
        here = replace(self.within, network=event.network, channel=event.channel)
        here = replace(here, nick=None, types=SPOKEN, own=False)
        first = event.time - _TALK
        [before] = await log.for_model(replace(here, before_id=event.id, since=first, limit=1))
        is_reply = any(each.nick != event.nick and asks(each.text) for each in before)
        shown = [event]
        if passage.needs_before or (is_reply and not passage.has_all):
            shown = [*before, event]
        if passage.alone < SURE or asks(event.text):
            later = replace(here, after_id=event.id, limit=LINES_AFTER + _MAX_ANSWERING)
            after = await log.shown_to_model(await log.find(later, newest=False))
            after = [each for each in after if each.time - event.time < _TALK]
            shown += after[:LINES_AFTER]
            for each in after[LINES_AFTER:]:
                if not asks(shown[-1].text):
                    break
                shown.append(each)
        return tuple(each for each in shown if not self.line_filter.leaves_out(each))

    async def to_log(self, question: LogQuestion) -> QuotedAnswer:
        """Return the lines that a question to the log asks for, at most MAX_QUOTED_LINES, or a
        sentence that there are none. Raises Unavailable."""
        ever = replace(self.within, nick=question.nick, types=SPOKEN, own=False)
        timed = question.span.narrow(ever)
        if not question.topic:
            return await self._of_person(question, timed)
        answer = await self._about(question, timed)
        if not answer.shown and question.span:
            # The words of time may belong to the topic, or the asker may be wrong about the time.
            for topic in (question.whole_topic, question.topic):
                other = await self._about(replace(question, topic=topic, span=ALL_TIME), ever)
                if other.shown:
                    return replace(other, lead="Not in that time, but:")
        return answer

    async def _of_person(self, question: LogQuestion, query: Query) -> QuotedAnswer:
        """Return the last or first lines that a person said, or anybody if none is named."""
        log, query = self.retrieval.log, replace(query, limit=_MAX_CANDIDATES)
        if question.wants == "first":  # `for_model` reads from the newest end only
            found = await log.shown_to_model(await log.find(query, newest=False))
        else:
            found = (await log.for_model(query))[0][::-1]
        most = 1 if question.about_time or question.wants else MAX_QUOTED_LINES
        events = [event for event in found if not self.line_filter.leaves_out(event)][:most]
        if not events:
            nobody = f"{self.quoting.nick(question.nick)} said nothing" if question.nick else ""
            return QuotedAnswer(f"{nobody or 'Nobody said anything'} here{question.span.phrase}.")
        lead = ""
        if question.about_time:
            first = "first" if question.wants == "first" else "last"
            who, time = self.quoting.nick(events[0].nick), events[0].time
            lead = f"{who} {first} spoke here on {self._in_words(time)}:"
        return QuotedAnswer.of(lead, events, self.quoting, score=1.0)

    async def _about(self, question: LogQuestion, query: Query) -> QuotedAnswer:
        """Return the lines about a topic, or a sentence that there are none."""
        line_filter = replace(self.line_filter, oldest=question.wants == "first", mentions=True)
        passages = await self.retrieval.log.read(
            find_passages, question.topic, replace(query, limit=_MAX_CANDIDATES), line_filter
        )
        fitting = [each for each in passages.items if each.coverage >= _MIN_COVERAGE]
        if not fitting:
            who = self.quoting.nick(question.nick) if question.nick else ""
            missed = f"I find nothing like that by {who} here" if who else "Nobody said that here"
            extent = ""
            if reached := passages.searched_back_to or passages.searched_up_to:
                direction = "back" if passages.searched_back_to else "up"
                day = f"{reached.astimezone(self.quoting.zone):%Y-%m-%d}"
                extent = f" (searched {direction} to {day})"
            return QuotedAnswer(f"{missed}{question.span.phrase}{extent}.")
        if question.wants:  # among the lines that cover the topic best, time decides
            most = max(each.coverage for each in fitting)
            fitting = [each for each in fitting if each.coverage >= most - 0.01]
            fitting.sort(key=lambda each: each.event.id, reverse=question.wants == "last")
        events = [each.event for each in fitting[: 1 if question.wants else MAX_QUOTED_LINES]]
        lead = f"That was on {self._in_words(events[0].time)}:" if question.about_time else ""
        return QuotedAnswer.of(lead, events, self.quoting, score=fitting[0].coverage)

    def _in_words(self, time: datetime) -> str:
        return f"{time.astimezone(self.quoting.zone):%Y-%m-%d at %H:%M}"
