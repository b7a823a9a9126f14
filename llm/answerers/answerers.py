"""The ordered list of those who answer a question in place of the model; the order is the policy.

A package adds one by an entry point of the group `terrarium.answerers`, whose object is created
without arguments; it comes after the skills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Protocol

from llm.client.profile import Profile
from llm.log_questions import QuotedAnswer
from llm.messages.errors import Unsure
from llm.prompt.log_window import LogWindow
from llm.reading.reading import (
    CHAT,
    FROM_HERE,
    OF_PLACE,
    Reading,
    Slots,
    asks_for_everybody,
)
from llm.reading.times import without_time
from storage.chat_log import statistics
from storage.chat_log.event import SPOKEN, Event, EventType
from storage.chat_log.event_table import Query
from storage.passages.passages import find_mentions
from storage.passages.replies import FOLLOWING_LINES, replies
from storage.passages.words import content_stems
from terrarium.entry_points import entry_points


@dataclass(frozen=True, slots=True)
class RoomView:
    """The people in a room now: their nicks, those of its operators, and the topic; `shown` spells
    a nick so that nobody is highlighted."""

    members: Sequence[str] = ()
    operators: Sequence[str] = ()
    topic: str = ""
    shown: Callable[[str], str] = str


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question as answerers see it, beside its reading.

    `worked_out` is the answer of a skill, "" for none; `quoted` are the lines of the log that
    answer the question, and `log_window` that log; `room` is who and what is there now. Each is
    None where there is none.
    """

    profile: Profile
    worked_out: str = ""
    quoted: QuotedAnswer | None = None
    log_window: LogWindow | None = None
    room: RoomView | None = None


@dataclass(frozen=True, slots=True)
class DirectAnswer:
    """An answer without the model: its text, the name of the answerer, how certain that is, from 0
    to 1, and the log lines that the text quotes.

    Lines that are quoted but not named here would outlive the erasure of who said them.
    """

    text: str
    by: str
    certainty: float = 1.0
    quoted: QuotedAnswer | None = None


class Answerer(Protocol):
    """Answers some questions without the model."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the answer, or None to leave the question to the next. Raises StorageError."""


_CERTAIN = 0.6  # certainty from which a fact is given
_CLAIMED = 0.9  # certainty from which "nobody said that" or "no such person" is said
_LIKELY = 0.35  # probability from which only people here may know, so that a model would invent it
_MAX_EVENTS = 2_000  # lines that are looked through for what was missed, and for links
_MAX_LINES = 2  # lines quoted of what was missed
_MAX_LINKS = 3
_MAX_NAMED = 3  # people
_PRESENT_WITHIN = timedelta(minutes=10)  # after their last line somebody was not away
_WITHOUT_ABSENCE = timedelta(hours=24)  # looked back at by who was not away
_MAX_TRIED = 5  # words of a question that are tried as the nick of somebody who has left
_EVENT_VERBS = {
    EventType.JOIN: "joined",
    EventType.PART: "left",
    EventType.QUIT: "quit",
    EventType.NICK: "changed nick",
    EventType.KICK: "kicked somebody",
    EventType.TOPIC: "set the topic",
}


class FactAnswerer:
    """Answers questions about the people in a room and about the log as a whole, for models that
    have no tools to look it up."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the fact, None if the question asks for none that is known."""
        if asked.profile.shortcuts != "all" or reading.certainty < _CERTAIN:
            return None
        fact: str | QuotedAnswer | None = self._of_room(reading, asked)
        if fact is None and asked.log_window:
            fact = await self._of_log(reading, asked.log_window, asked)
        if isinstance(fact, QuotedAnswer):
            return DirectAnswer(fact.text, "facts", reading.certainty, fact)
        return None if fact is None else DirectAnswer(fact, "facts", reading.certainty)

    def _of_room(self, reading: Reading, asked: AskedQuestion) -> str | None:
        room, slots = asked.room, reading.slots
        if room is None or not room.members:
            return None
        shown = room.shown
        match reading.kind:
            case "present" if slots.person:
                return f"Yes, {shown(slots.person)} is here."
            case "present" if not slots.topic or asks_for_everybody(reading.text):
                return f"{len(room.members)} here: {', '.join(map(shown, room.members))}"
            case "operators":
                names = ", ".join(map(shown, room.operators))
                return f"Operators here: {names}." if names else "Nobody here is an operator."
            case "topic":
                return f"The topic is: {room.topic}" if room.topic else "No topic is set here."
        return None

    async def _of_log(
        self, reading: Reading, window: LogWindow, asked: AskedQuestion
    ) -> str | QuotedAnswer | None:
        slots, query = reading.slots, window.before()
        match reading.kind:
            case "seen" | "present":
                nick = slots.person or await window.nick_in(slots.names[:_MAX_TRIED])
                if nick:
                    return await _last_seen(window, nick, asked)
                if not slots.names or reading.certainty < _CLAIMED:
                    return None  # "how long has it been here?" names nobody
                if reading.kind == "present":
                    return f"Nobody called {slots.names[0]} is here."
                return f"I have not seen {slots.names[0]} here."
            case "counts" if slots.topic:
                by_nick = slots.person or None
                found = await window.log.read(
                    find_mentions,
                    slots.topic,
                    replace(slots.span.narrow(query), nick=by_nick),
                    window.line_filter,
                )
                if not found.words:
                    return await _in_all(window, query) or None
                if not found.count and reading.certainty < _CLAIMED:
                    return None  # "how many has he got left?" is not about words
                number = f"{found.count:,} line{'' if found.count == 1 else 's'}"
                by = f" by {window.quoting.nick(by_nick)}" if by_nick else ""
                words = zip(found.words, found.alone, strict=False)
                if alone := [f"{word} {lines:,}" for word, lines in words if lines]:
                    named = ", ".join(found.words)
                    return f"No line{by} here has all of: {named}. Alone: {', '.join(alone)}."
                about = f"{number}{by} here with: {', '.join(found.words)}."
                # Without a line the words may not have been the topic: "how many so far?"
                is_told = found.count or by_nick
                return about if is_told else f"{about} {await _in_all(window, query)}"
            case "counts" if slots.person:
                stats = await window.log.read(
                    statistics.stats,
                    replace(slots.span.narrow(query), nick=slots.person, own=False),
                )
                lines = f"{stats.lines:,} line{'' if stats.lines == 1 else 's'}"
                since = f", the first on {stats.first:%Y-%m-%d}" if stats.first else ""
                who = window.quoting.nick(slots.person)
                return f"{who} has said {lines} here{slots.span.phrase}{since}."
            case "counts" if slots.span:
                span = slots.span
                told = await _in_all(window, span.narrow(query), span.phrase)
                return told or f"Nobody said anything here{span.phrase}."
            case "missed":
                return await _sum_up_missed(window, slots.span.narrow(query), slots.span.phrase)
            case "links":
                return await _links(window, slots.span.narrow(query), slots)
        return None


async def _in_all(window: LogWindow, query: Query, phrase: str = "") -> str:
    """Return how many lines were said here, by how many people, and by whom most; "" if none."""
    stats = await window.log.read(statistics.stats, replace(query, own=False), top=_MAX_NAMED)
    most = ", ".join(f"{window.quoting.nick(nick)} {lines:,}" for nick, lines in stats.top)
    by = "1 person" if stats.people == 1 else f"{stats.people} people, most by {most}"
    return f"In all {stats.lines:,} lines{phrase} by {by}." if most else ""


async def _last_seen(window: LogWindow, nick: str, asked: AskedQuestion) -> str | QuotedAnswer:
    """Return when somebody was last here, by anything that they did, and what they last said."""
    shown = window.quoting.nick(nick)
    query = replace(window.before(), nick=nick, limit=1)
    done, said = await window.log.for_model(query, replace(query, types=SPOKEN))
    here = asked.room is not None and nick in asked.room.members
    lead = f"{shown} is here now" if here else ""
    if not done:
        return f"{lead}, and has said nothing yet." if here else f"I have not seen {shown} here."
    if not here:
        time = done[-1].time.astimezone(window.quoting.zone)
        act = _EVENT_VERBS.get(done[-1].type, "")
        lead = f"{shown} was last here on {time:%Y-%m-%d at %H:%M}{f' ({act})' if act else ''}"
    if not said:
        return f"{lead}."
    return QuotedAnswer.of(f"{lead}; last said:", said, window.quoting)


async def _sum_up_missed(window: LogWindow, query: Query, phrase: str) -> str | QuotedAnswer:
    """Return what was said since the asker last spoke, or in the time they named: how much, by
    whom, the questions most replied to, and links."""
    query = replace(query, types=SPOKEN, limit=_MAX_EVENTS)
    if not phrase:
        own = replace(query, own=False, nick=window.speaker, limit=1)
        [last] = await window.log.for_model(own)
        # Who has just spoken missed what was said before.
        if last and window.time_of_question() - last[0].time > _PRESENT_WITHIN:
            query = replace(query, after_id=last[0].id)
            phrase = f" since {last[0].time.astimezone(window.quoting.zone):%Y-%m-%d %H:%M}"
        else:
            query = replace(query, since=window.time_of_question() - _WITHOUT_ABSENCE)
            phrase = " in a day"
    [found] = await window.log.for_model(query)
    # What a bot has answered was for it, whatever its nick is: the web pages do not know that.
    answered = {event.reply_to for event in found if event.own}
    said = [
        event
        for event in found
        if event.id not in answered and not window.line_filter.leaves_out(event)
    ]
    if not said:
        return f"Nothing was said here{phrase}."
    speakers = Counter(event.nick for event in said)
    most = ", ".join(
        f"{window.quoting.nick(nick)} {count}" for nick, count in speakers.most_common(_MAX_NAMED)
    )
    people = "1 person" if len(speakers) == 1 else f"{len(speakers)} people"
    lines = "1 line" if len(said) == 1 else f"{len(said):,} lines"
    links = sum("://" in event.text for event in said)
    linked = f", {links} with links" if links else ""
    head = f"{lines} by {people}{phrase}{linked}; most by {most}. Most answered:"
    quoted = _select_most_answered(said)
    if not quoted:
        return head.removesuffix(" Most answered:")
    return QuotedAnswer.of(head, quoted, window.quoting)


def _select_most_answered(said: Sequence[Event]) -> tuple[Event, ...]:
    """Return the lines that most of the lines after them seem to reply to, in order of time."""
    scores = {
        event.id: sum(chance for _, chance in replies(event, said[place + 1 :][:FOLLOWING_LINES]))
        for place, event in enumerate(said)
        if "?" in event.text
    }
    best = sorted(scores, key=scores.__getitem__, reverse=True)[:_MAX_LINES]
    return tuple(event for event in said if event.id in best)


async def _links(window: LogWindow, query: Query, slots: Slots) -> str | QuotedAnswer:
    """Return the newest lines with links, of a person if one is named, and of those that share most
    words with the topic if any has one."""
    query = replace(query, types=SPOKEN, own=False, nick=slots.person or None, limit=_MAX_EVENTS)
    [found] = await window.log.for_model(query)
    linked = [event for event in found if "://" in event.text or "www." in event.text]
    linked = [event for event in linked if not window.line_filter.leaves_out(event)]
    if not linked:
        who = f" by {window.quoting.nick(slots.person)}" if slots.person else ""
        return f"I found no link{who} here."
    topic = content_stems(slots.topic)
    shared = [len(topic & content_stems(event.text)) for event in linked]
    fitting = [each for each, count in zip(linked, shared, strict=True) if count == max(shared)]
    return QuotedAnswer.of("", fitting[-_MAX_LINKS:][::-1], window.quoting)


ENTRY_POINT_GROUP = "terrarium.answerers"

TOO_SMALL = Unsure.sentence
CANNOT = "I cannot do that; I can only answer questions and search the log."
ONLY_ENGLISH = "My model is too small for languages other than English; please ask in English."
NO_REMINDERS = "I cannot set that reminder here."
NO_TIME = 'When? Say it like "remind me in 20 minutes to ..." or "remind me tomorrow at 9 to ...".'
TAKEN_NOTE = "I see."
SELF = (
    "I am a bot: a program with a small language model. I work out sums, units, dates and times,"
    " and answer simple questions."
)
NOT_SAID = "I do not find that in the log here; try it in other words, or ask people."

_ASKED = frozenset({"follow_up", "general"})
"""The kinds of questions that a tiny model is asked: what follows up may be general, too."""
_ABOUT = frozenset({"about_bot", "help"})
_FELT = frozenset({"glad", "sad"})
_SURELY_FELT = 0.65  # probability from which a sentence is answered as one of joy or sorrow
_ACTS = frozenset({"order", "tell", "schedule"})

COURTESIES = {
    "hello": "Hello! Ask me something.",
    "thanks": "You are welcome.",
    "bye": "Bye.",
    "how_are_you": "I am fine, thank you.",
    "praise": "Thank you.",
    "sorry": "No problem.",
    "insult": "Sorry; my model is small. I am better at searching the log.",
    "laugh": ":)",
    "test": "Yes, I am here.",
    "glad": "How nice! I am glad to hear that.",
    "sad": "Oh dear. I am sorry to hear that.",
    "other": "I see.",
}
"""Answers to small talk by its kind, for a tiny model."""


class SkillAnswerer:
    """Gives what a skill has worked out, whatever the model."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the result of the skill."""
        return DirectAnswer(asked.worked_out, "skill") if asked.worked_out else None


class LogAnswerer:
    """Quotes the lines of the log that answer the question, for models that retell them wrongly."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the lines, or that nothing was found where only people here can know."""
        quoted, quotes = asked.quoted, asked.profile.quotes
        if quoted is None:
            # A model that is shown nothing would only invent it.
            is_lost = quotes != "none" and asked.log_window and reading.is_one_of(OF_PLACE, _LIKELY)
            return DirectAnswer(NOT_SAID, "log", reading.certainty) if is_lost else None
        if quotes == "none" or not (quoted.is_about_log or quotes == "all"):
            return None
        score = quoted.score if quoted.quotes else reading.certainty
        # That somebody did not say something is claimed only if that surely was the question.
        text = quoted.text if quoted.quotes or score >= _CLAIMED else NOT_SAID
        return DirectAnswer(text or NOT_SAID, "log", score, quoted)


class HonestAnswerer:
    """Says for a tiny model what it cannot do, and is polite in its place."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the sentence for a kind that the model only pretends to fulfil."""
        if asked.profile.makes_small_talk:
            return None
        if not reading.kind or reading.is_one_of(_ASKED):
            return DirectAnswer(ONLY_ENGLISH, "honest") if reading.is_foreign else None
        if reading.is_one_of(_ABOUT):
            text = SELF
        elif reading.is_one_of(CHAT):
            text = _courtesy(reading)
        elif reading.sure_kind == "remind":  # those that can be set are, before
            text = NO_REMINDERS if without_time(reading.slots.words) else NO_TIME
        elif reading.is_one_of(_ACTS):
            text = CANNOT
        elif reading.is_foreign:
            text = ONLY_ENGLISH
        else:
            searched = asked.log_window is not None and reading.is_one_of(FROM_HERE)
            text = NOT_SAID if searched else TOO_SMALL
        return DirectAnswer(text, "honest", reading.certainty)


def _courtesy(reading: Reading) -> str:
    """Return the answer to small talk, and to a statement of joy or sorrow."""
    kind, share = reading.courtesy, reading.courtesies.get(reading.courtesy, 0.0)
    is_chat = reading.sure_kind == "small_talk"
    is_answered = share >= _SURELY_FELT if kind in _FELT else is_chat
    return COURTESIES.get(kind, TAKEN_NOTE) if is_answered else TAKEN_NOTE


@cache
def answerers() -> Sequence[Answerer]:
    """Return the answerers in order: facts, skills, those of packages, the log, honest refusals."""
    added = [entry.load()() for entry in entry_points(ENTRY_POINT_GROUP)]
    return [FactAnswerer(), SkillAnswerer(), *added, LogAnswerer(), HonestAnswerer()]


async def first_answer(reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
    """Return the first answer without the model; None if the model is to be asked."""
    for answerer in answerers():
        if answer := await answerer.answer(reading, asked):
            return answer
    return None
