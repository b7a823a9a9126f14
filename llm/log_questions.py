"""Questions about what was said ("who said ... about ...?", "when did bob last speak?"), and quoted
log lines as their answer, without a model: each with its time, speaker and a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from enum import Enum

from llm.reading.reading import Reading
from llm.reading.spans import ALL_TIME, TimeSpan
from llm.retrieval import Retrieval
from storage.chat_log.event import SPOKEN, Event, EventType
from storage.chat_log.event_table import Query
from storage.passages.passages import PEOPLE, LineFilter, find_passages
from storage.passages.words import content_stems, rarity

MAX_QUOTED_LINES = 3
"""The most lines of an answer."""

_MAX_CANDIDATES = 60  # passages among which the newest or oldest is looked for
_MIN_COVERAGE = 0.6  # the least share of a topic's weight that a line about it has
_MAX_LINE_LENGTH = 350  # characters of a line that are quoted
_MAX_NEAR = 10  # possible answers that a model reads, at most
_MIN_NEAR_SCORE = 0.03  # their least score
_ALTERNATIVE = 0.05  # least score of a second line that is shown if the first one is not sure

_LIKELY_MEANT = 0.27  # least score of what somebody may have meant who said none of the words

PERHAPS_LEAD = "Perhaps:"
"""The lead of lines none of which surely is the answer."""

RECENT_LEAD = "The last lines here:"
"""The lead of lines that only show the current conversation."""


class Wish(Enum):
    """Which of the matching lines are wanted."""

    BEST = "best"
    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """A question to the log for lines by `nick` (None: anybody) about `topic` ("": anything) within
    a time `span`.

    `about_time`: it asks when that was said. `whole_topic` includes the words that were taken for
    the span, as they may belong to the topic.
    """

    topic: str
    nick: str | None = None
    wish: Wish = Wish.BEST
    about_time: bool = False
    span: TimeSpan = ALL_TIME
    whole_topic: str = ""


def log_question(reading: Reading, person: str) -> LogQuestion | None:
    """Return what a question asks of the log, None if it asks nothing of it. `person` is the nick
    of somebody who has spoken, "" if it names nobody."""
    slots, kind = reading.slots, reading.kind
    topic = " ".join(word for word in slots.topic.split() if word.casefold() != person.casefold())
    wish = {"last": Wish.NEWEST, "first": Wish.OLDEST, "": Wish.BEST}[slots.wants]
    whole = f"{topic} {slots.span.words}".strip()
    match kind:
        case "who_said" | "search" if topic:
            nick = None if kind == "who_said" else person or None
            return LogQuestion(topic, nick, wish, False, slots.span, whole)
        case "said_by" if person:
            by_time = Wish.NEWEST if wish is Wish.BEST and not topic else wish
            return LogQuestion(topic, person, by_time, False, slots.span, whole)
        case "when_said" if topic or person:
            by_time = Wish.NEWEST if wish is Wish.BEST and not (person and topic) else wish
            return LogQuestion(topic, person or None, by_time, True, slots.span, whole)
        case "who_said" | "said_by" | "search" if slots.span:
            return LogQuestion("", person or None, wish, False, slots.span, whole)
    return None


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
        first, most = events[0], _MAX_LINE_LENGTH // len(events)
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


async def answer_about_log(
    retrieval: Retrieval,
    text: str,
    within: Query,
    question: LogQuestion | None,
    quoting: Quoting = PLAIN,
    line_filter: LineFilter = PEOPLE,
    vector: Sequence[float] | None = None,
) -> QuotedAnswer | None:
    """Return the answer of the log to any question, None if it has none.

    A `question` about what was said always has one, even if only that nothing was found; any other
    has one if somebody said it, or may have said it: that line, and what was said around it, and if
    it is not sure, the next likely one as well.
    `vector` is the embedding of the text, if it is known. Raises Unavailable.
    """
    if question is not None:
        answer = await answer_from_log(retrieval, question, within, quoting, line_filter)
        if not answer.shown and (question.nick or question.topic):
            # "what is ingrid's talk about?" may be a question about what she told of it, and she
            # need not have said "varroa" when she spoke of mites.
            own = replace(within, nick=question.nick, limit=_MAX_NEAR)
            found = await retrieval.find(text, own, vector=vector, line_filter=line_filter)
            if found.passages and found.passages[0].score >= _LIKELY_MEANT:
                best = found.passages[0]
                lead = "" if found.is_sure and question.nick else PERHAPS_LEAD
                return QuotedAnswer.of(lead, [best.event], quoting, best.score)
        return replace(answer, is_about_log=True)
    wanted = replace(within, limit=_MAX_NEAR)
    found = await retrieval.find(text, wanted, vector=vector, line_filter=line_filter)
    if not found.shown:
        return None
    best = found.shown[0]
    quotes = [await retrieval.exchange(best, within, line_filter)]
    if found.is_sure:
        return QuotedAnswer("", tuple(quotes), quotes[0], quoting, best.score)
    for other in found.passages[1:]:
        if other.score >= _ALTERNATIVE and other.event not in quotes[0] and other.is_related:
            around = await retrieval.exchange(other, within, line_filter)
            quotes.append(tuple(event for event in around if event not in quotes[0]))
            break
    near = [each.event for each in found.passages if each.score >= _MIN_NEAR_SCORE]
    events = tuple(dict.fromkeys([*(event for quote in quotes for event in quote), *near]))
    return QuotedAnswer(PERHAPS_LEAD, tuple(quotes), events, quoting, best.score)


async def answer_from_log(
    retrieval: Retrieval,
    question: LogQuestion,
    within: Query,
    quoting: Quoting = PLAIN,
    line_filter: LineFilter = PEOPLE,
) -> QuotedAnswer:
    """Return the lines that a question to the log asks for, at most MAX_QUOTED_LINES, or a sentence
    that there are none.

    `within` restricts what may be read, to lines before the asking one (`before_id`). Nobody who
    has opted out is quoted. Raises Unavailable.
    """
    query = replace(within, nick=question.nick, types=SPOKEN, own=False)
    timed = question.span.narrow(query)
    if not question.topic:
        return await _of_person(retrieval, question, timed, quoting, line_filter)
    answer = await _about(retrieval, question, timed, quoting, line_filter)
    if not answer.shown and question.span:
        # The words of time may belong to the topic, or the asker may be wrong about the time.
        for topic in (question.whole_topic, question.topic):
            ever = replace(question, topic=topic, span=ALL_TIME)
            other = await _about(retrieval, ever, query, quoting, line_filter)
            if other.shown:
                return replace(other, lead="Not in that time, but:")
    return answer


async def _of_person(
    retrieval: Retrieval,
    question: LogQuestion,
    query: Query,
    quoting: Quoting,
    line_filter: LineFilter,
) -> QuotedAnswer:
    """Return the last or first lines that a person said, or anybody if the question names none."""
    most = 1 if question.about_time or question.wish is not Wish.BEST else MAX_QUOTED_LINES
    query = replace(query, limit=_MAX_CANDIDATES)
    if question.wish is Wish.OLDEST:  # `for_model` reads from the newest end only
        found = await retrieval.log.shown_to_model(await retrieval.log.find(query, newest=False))
    else:
        found = (await retrieval.log.for_model(query))[0][::-1]
    events = [event for event in found if not line_filter.leaves_out(event)][:most]
    if not events:
        nobody = f"{quoting.nick(question.nick)} said nothing" if question.nick else ""
        return QuotedAnswer(f"{nobody or 'Nobody said anything'} here{question.span.phrase}.")
    lead = ""
    if question.about_time:
        first = "first" if question.wish is Wish.OLDEST else "last"
        time = events[0].time.astimezone(quoting.zone)
        lead = f"{quoting.nick(events[0].nick)} {first} spoke here on {time:%Y-%m-%d at %H:%M}:"
    return QuotedAnswer.of(lead, events, quoting, score=1.0)


async def _about(
    retrieval: Retrieval,
    question: LogQuestion,
    query: Query,
    quoting: Quoting,
    line_filter: LineFilter,
) -> QuotedAnswer:
    """Return the lines about a topic, or a sentence that there are none."""
    best = question.wish is Wish.BEST
    passages = await retrieval.log.read(
        find_passages,
        question.topic,
        replace(query, limit=_MAX_CANDIDATES),
        replace(line_filter, oldest=question.wish is Wish.OLDEST, mentions=True),
    )
    fitting = [each for each in passages.items if each.coverage >= _MIN_COVERAGE]
    if not fitting:
        who = quoting.nick(question.nick) if question.nick else ""
        missed = f"I find nothing like that by {who} here" if who else "Nobody said that here"
        extent = ""
        if reached := passages.searched_back_to or passages.searched_up_to:
            direction = "back" if passages.searched_back_to else "up"
            extent = f" (searched {direction} to {reached.astimezone(quoting.zone):%Y-%m-%d})"
        return QuotedAnswer(f"{missed}{question.span.phrase}{extent}.")
    if not best:  # among the lines that cover the topic best, time decides
        most = max(each.coverage for each in fitting)
        fitting = [each for each in fitting if each.coverage >= most - 0.01]
        fitting.sort(key=lambda each: each.event.id, reverse=question.wish is Wish.NEWEST)
    events = [each.event for each in fitting[: MAX_QUOTED_LINES if best else 1]]
    lead = ""
    if question.about_time:
        time = events[0].time.astimezone(quoting.zone)
        lead = f"That was on {time:%Y-%m-%d at %H:%M}:"
    return QuotedAnswer.of(lead, events, quoting, score=fitting[0].coverage)
