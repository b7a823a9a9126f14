"""The `<irc_logs>` block: lines of the chat log as the model reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from llm.messages.escaping import escape_tags
from storage.chat_log.event import Event, EventType
from storage.chat_log.event_text import event_line

_FOLDED = {EventType.JOIN: "joined", EventType.PART: "left", EventType.QUIT: "quit"}


EARLIER = "earlier_irc_logs"
"""The tag of lines from further back that belong to a question."""


def stamp(time: datetime) -> str:
    """The time of a line, in UTC."""
    return f"[{time.isoformat(' ', 'seconds')[:19]}]"


def render_block(events: Sequence[Event], tag: str = "irc_logs") -> str:
    """The events between tags, or nothing when there are none."""
    lines = "\n".join(_lines(events))
    return f"<{tag}>\n{lines}\n</{tag}>\n\n" if lines else ""


def _lines(events: Iterable[Event]) -> Iterable[str]:
    """One line an event; all who come and go one after another share one, without its time, which
    would be most of it: the lines around tell that."""
    for folded, group in groupby(events, key=lambda event: event.type in _FOLDED):
        if folded:
            yield escape_tags(f"*** {'; '.join(_came_and_went(group))}")
        else:
            yield from map(render_line, group)


def _came_and_went(events: Iterable[Event]) -> Iterable[str]:
    for kind, group in groupby(events, key=lambda event: _FOLDED[event.type]):
        nicks = ", ".join(dict.fromkeys(event.nick for event in group))
        yield f"{nicks} {kind}"


def render_line(event: Event) -> str:
    """One event with its time, harmless, on one line: nobody can write a line for another."""
    return escape_tags(" ".join(f"{stamp(event.time)} {event_line(event)}".splitlines()))
