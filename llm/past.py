"""What came before a question: log lines and turns, and which of them are shown as what."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from llm.irc_logs import EARLIER, block, line
from llm.log_view import Shown
from llm.message import Message
from llm.untrusted import neutral
from storage.conversations import Turn
from storage.event import Event

_MOST_MESSAGES = 30  # of earlier turns that are sent; beyond, a third of them
_SHORT = 400  # characters of an answer that is surely said in full


def too_many(turns: Sequence[Turn]) -> bool:
    """Whether no prompt should have so many turns."""
    return sum(len(turn.messages) for turn in turns) > _MOST_MESSAGES


def newest(turns: list[Turn], start: int = sys.maxsize) -> list[Turn]:
    """A third of what a prompt may have at most, or all from the event `start` on, if those are
    more; never part of a turn, and always the last one."""
    kept = turns[-1:]
    for turn in reversed(turns[:-1]):
        few = sum(len(each.messages) for each in [turn, *kept]) <= _MOST_MESSAGES // 3
        if not few and turn.anchor < start:
            break
        kept.insert(0, turn)
    return kept


def anchors(turns: Iterable[Turn]) -> set[int]:
    """The log events that are shown as turns: the questions, those that joined included."""
    joined = {message.get("anchor", 0) for turn in turns for message in turn.messages}
    return joined | {turn.anchor for turn in turns}


def others_answered(shown: Shown, who: str) -> int:
    """The last event that answers somebody else than `who`; 0 when there is none."""
    own = {event.id for event in shown.events if event.nick == who}
    answers = ((event.id, event.reply_to) for event in shown.events if event.own)
    return max((n for n, to in answers if to and to > shown.start and to not in own), default=0)


def not_read_as_lines(turns: Sequence[Turn], start: int) -> list[Turn]:
    """The turns to show as such to one of several who ask in a room, where lines are shown from
    the event `start` on.

    All are shown the same lines, up to the first turn of their own among them: the earlier it is,
    the less of the prompt is the same. So one's own turns among them are the lines that they are
    for everybody, unless there was more to them than the log has: tools, or a long answer.
    """
    return [turn for turn in turns if turn.anchor < start or not _said_whole(turn)]


def _said_whole(turn: Turn) -> bool:
    """Whether a turn is no more than what was said."""
    _, *came = turn.messages
    return all(each["role"] != "tool" and length(each) <= _SHORT for each in came)


def in_order(events: list[Event], turns: Sequence[Turn]) -> list[Event | Turn]:
    """Log lines and turns in order of arrival."""
    return _merged(events, turns, 0)


def in_shared_order(shown: Shown, turns: Sequence[Turn]) -> list[Event | Turn]:
    """The same, but turns from before the lines follow those that everybody is shown, up to the
    first turn among them."""
    among = (turn.anchor for turn in turns if turn.anchor >= shown.start)
    return _merged(shown.events, turns, next(among, sys.maxsize))


def _merged(events: list[Event], turns: Sequence[Turn], first: int) -> list[Event | Turn]:
    """The turns among the events, none of them before the event `first`."""
    past: list[Event | Turn] = []
    for turn in turns:
        before = [event for event in events if event.id < max(turn.anchor, first)]
        events = events[len(before) :]
        past += [*before, turn]
    return past + events


def size(item: Event | Turn) -> int:
    """About how many characters an item of the past has in the prompt."""
    if isinstance(item, Event):
        return len(line(item))
    return sum(map(length, item.messages))


def length(message: Message) -> int:
    """About how many characters a message has in the prompt."""
    return len(message["content"] or "") + len(str(message.get("tool_calls", "")))


def asked(
    question: Message, events: Sequence[Event], related: Sequence[Event] = (), beside: str = ""
) -> Message:
    """A question as it is sent: the lines just before it, which others are shown too, the lines
    from further back that belong to it, what else does, then who asked it, once."""
    text = neutral(f"{question['name']} asks: {question['content']}")
    more = f"{beside}\n\n" if beside else ""
    return {"role": "user", "content": block(events) + block(related, EARLIER) + more + text}


def sent(step: Message) -> Message:
    """A step as it is sent; one of a person is a question that joined the first one."""
    return asked(step, ()) if "name" in step else step
