"""Pages: the template engine, and how a stretch of the log is laid out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from harnesses.web.models import channel_path, permalink
from harnesses.web.text import answer_html, nick_colour, plain, said
from storage.event import SPOKEN, Event, EventType


@dataclass(frozen=True, slots=True)
class Block:
    """A line that was said, or a run of quiet events (joins, parts, modes) that is folded.

    `day` is set where the block begins a new day.
    """

    events: tuple[Event, ...]
    spoken: bool
    day: datetime | None


def blocks(events: Iterable[Event]) -> Iterator[Block]:
    """Lay out events in order of time."""
    quiet: list[Event] = []
    shown: datetime | None = None
    for event in events:
        new_day = shown is None or event.time.date() != shown.date()
        if quiet and (event.type in SPOKEN or new_day):
            yield Block(tuple(quiet), spoken=False, day=None)
            quiet = []
        if new_day:
            yield Block((), spoken=False, day=event.time)
        shown = event.time
        if event.type in SPOKEN:
            yield Block((event,), spoken=True, day=None)
        else:
            quiet.append(event)
    if quiet:
        yield Block(tuple(quiet), spoken=False, day=None)


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page; `values` are what its template names."""
    html = _templates.get_template(template).render(path=request.scope["path"], **values)
    return HTMLResponse(html, status, {"Cache-Control": "no-store"})


def lines(events: Sequence[Event]) -> Markup:
    """Only the lines of a log, for a page that is already open."""
    html = _templates.get_template("lines.html").render(blocks=list(blocks(events)))
    return Markup(html)  # noqa: S704 - rendered with autoescape


def _happened(event: Event) -> str:
    """A quiet event in words, without the nick before it."""
    text, target = plain(event.text), plain(event.target)
    because = f" ({text})" if text else ""
    return {
        EventType.JOIN: "joined",
        EventType.PART: f"left{because}",
        EventType.QUIT: f"quit{because}",
        EventType.NICK: f"is now {target}",
        EventType.KICK: f"kicked {target}{because}",
        EventType.MODE: f"set mode {text}",
        EventType.TOPIC: f"set the topic: {text}" if text else "cleared the topic",
    }.get(event.type, text)


def _ago(time: datetime) -> str:
    """How long ago a time was, roughly."""
    seconds = (datetime.now(UTC) - time).total_seconds()
    if seconds < 60:
        return "just now"
    for size, name in ((31_557_600, "year"), (2_629_800, "month"), (86_400, "day"), (3600, "hour")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' * (count > 1)} ago"
    return f"{int(seconds // 60)} min ago"


_templates = Environment(
    loader=PackageLoader("harnesses.web"),
    autoescape=select_autoescape(default=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= {
    "said": said,
    "plain": plain,
    "answer": answer_html,
    "happened": _happened,
    "ago": _ago,
    "colour": nick_colour,
    "permalink": permalink,
    "channel_path": channel_path,
}
