"""Facts that code knows better than any model: who is here, who was, what was said how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from llm.answerers.answer import AskedQuestion, DirectAnswer
from llm.log_questions.answers import QuotedAnswer
from llm.prompt.log_window import LogWindow
from llm.reading.reading import Reading
from llm.reading.slots import asks_for_everybody
from storage.chat_log.event import SPOKEN, Event, EventType
from storage.chat_log.event_table import Query
from storage.passages.replies import FOLLOWING_LINES, replies

_CERTAIN = 0.6  # from which a fact is given
_MAX_EVENTS = 2_000  # lines that are looked through for what was missed, and for links
_MAX_LINES = 2  # lines quoted of what was missed
_MAX_LINKS = 3
_MOST_NAMED = 3  # people
_PRESENT_WITHIN = timedelta(minutes=10)  # after their last line somebody was not away
_WITHOUT_ABSENCE = timedelta(hours=24)  # looked back at by who was not away
_MAX_NAMES = 5  # words of a question that are tried as the nick of somebody who has left
_ACTS = {
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
        slots, within = reading.slots, window.before()
        match reading.kind:
            case "seen" | "present":
                nick = slots.person or await window.nick_in(slots.names[:_MAX_NAMES])
                if nick:
                    return await _last_seen(window, nick, asked)
                if not slots.names:
                    return None
                if reading.kind == "present":
                    return f"Nobody called {slots.names[0]} is here."
                return f"I have not seen {slots.names[0]} here."
            case "counts" if slots.topic:
                by_nick = slots.person or None
                found = await window.log.mentions_for_model(
                    slots.topic,
                    replace(slots.span.within(within), nick=by_nick),
                    window.line_filter,
                )
                if not found.words:
                    return await _in_all(window, within) or None
                number = f"{found.count:,} line{'' if found.count == 1 else 's'}"
                by = f" by {window.quoting.nick(by_nick)}" if by_nick else ""
                about = f"{number}{by} here with: {', '.join(found.words)}."
                # Without a line the words may not have been the topic: "how many so far?"
                is_told = found.count or by_nick
                return about if is_told else f"{about} {await _in_all(window, within)}"
            case "counts" if slots.person:
                stats = await window.log.stats(
                    replace(slots.span.within(within), nick=slots.person, own=False)
                )
                lines = f"{stats.lines:,} line{'' if stats.lines == 1 else 's'}"
                since = f", the first on {stats.first:%Y-%m-%d}" if stats.first else ""
                who = window.quoting.nick(slots.person)
                return f"{who} has said {lines} here{slots.span.phrase}{since}."
            case "missed":
                return await _sum_up_missed(window, slots.span.within(within), slots.span.phrase)
            case "links":
                return await _links(window, slots.span.within(within), slots.person)
        return None


async def _in_all(window: LogWindow, within: Query) -> str:
    """Return how many lines were said here, and by whom most; "" if none."""
    stats = await window.log.stats(replace(within, own=False), top=_MOST_NAMED)
    most = ", ".join(f"{window.quoting.nick(nick)} {lines:,}" for nick, lines in stats.top)
    return f"In all {stats.lines:,} lines, most by {most}." if most else ""


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
        act = _ACTS.get(done[-1].type, "")
        lead = f"{shown} was last here on {time:%Y-%m-%d at %H:%M}{f' ({act})' if act else ''}"
    if not said:
        return f"{lead}."
    return QuotedAnswer(f"{lead}; last said:", tuple(said), tuple(said), window.quoting)


async def _sum_up_missed(window: LogWindow, query: Query, phrase: str) -> str | QuotedAnswer:
    """Return what was said since the asker last spoke, or in the time they named: how much, by
    whom, the questions most replied to, and links."""
    query = replace(query, types=SPOKEN, own=False, limit=_MAX_EVENTS)
    if not phrase:
        own = replace(query, nick=window.speaker, limit=1)
        [last] = await window.log.for_model(own)
        # Who has just spoken missed what was said before.
        if last and window.time_of_question() - last[0].time > _PRESENT_WITHIN:
            query = replace(query, after_id=last[0].id)
            phrase = f" since {last[0].time.astimezone(window.quoting.zone):%Y-%m-%d %H:%M}"
        else:
            query, phrase = (
                replace(query, since=window.time_of_question() - _WITHOUT_ABSENCE),
                " in a day",
            )
    [found] = await window.log.for_model(query)
    said = [event for event in found if not window.line_filter.leaves_out(event)]
    if not said:
        return f"Nothing was said here{phrase}."
    speakers = Counter(event.nick for event in said)
    most = ", ".join(
        f"{window.quoting.nick(nick)} {count}" for nick, count in speakers.most_common(_MOST_NAMED)
    )
    people = "1 person" if len(speakers) == 1 else f"{len(speakers)} people"
    lines = "1 line" if len(said) == 1 else f"{len(said):,} lines"
    links = sum("://" in event.text for event in said)
    linked = f", {links} with links" if links else ""
    head = f"{lines} by {people}{phrase}{linked}; most by {most}. Most answered:"
    quoted = _select_most_answered(said)
    if not quoted:
        return head.removesuffix(" Most answered:")
    return QuotedAnswer(head, quoted, quoted, window.quoting)


def _select_most_answered(said: Sequence[Event]) -> tuple[Event, ...]:
    """Return the lines that most of the lines after them seem to reply to, in order of time."""
    scores = {
        event.id: sum(each.chance for each in replies(event, said[place + 1 :][:FOLLOWING_LINES]))
        for place, event in enumerate(said)
        if "?" in event.text
    }
    best = sorted(scores, key=scores.__getitem__, reverse=True)[:_MAX_LINES]
    return tuple(event for event in said if event.id in best)


async def _links(window: LogWindow, query: Query, person: str) -> str | QuotedAnswer:
    """Return the newest lines with links, of a person if one is named."""
    query = replace(query, types=SPOKEN, own=False, nick=person or None, limit=_MAX_EVENTS)
    [found] = await window.log.for_model(query)
    linked = [event for event in found if "://" in event.text or "www." in event.text]
    linked = [event for event in linked if not window.line_filter.leaves_out(event)]
    if not linked:
        who = f" by {window.quoting.nick(person)}" if person else ""
        return f"I find no link{who} here."
    shown = tuple(linked[-_MAX_LINKS:][::-1])
    return QuotedAnswer("", shown, shown, window.quoting)
