"""Rendering of pages with Jinja, and the layout of log lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any
from urllib.parse import parse_qs, quote
from zoneinfo import ZoneInfo

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from harnesses.core.addresses import channel_path, permalink, relative_permalink, with_query
from harnesses.core.text import counted
from harnesses.web.rendering.text import (
    answer_html,
    nick_colour,
    plain_lines,
    render_line,
    safe_description,
    strip_formatting,
)
from harnesses.web.rendering.timezones import (
    COOKIE,
    UTC,
    day_path,
    in_words,
    local_day,
    short,
    zone_names,
    zone_of,
)
from storage.chat_log.event import SPOKEN, Event, EventType, without_host
from storage.chat_log.opt_outs import nick_of

_COOKIE_SECONDS = 365 * 86400
_PAUSE = timedelta(minutes=5)  # after which a nick is shown again, as in channel.js
_MAX_FORM_BYTES = 64 * 1024  # the longest is a summary, percent-encoded


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A unit of the layout: a spoken line, a fold of consecutive other events (joins, parts,
    modes), or the heading of a new `day`, without events. A line `continues` that of the same
    person directly before it, so that their nick need not be repeated."""

    events: tuple[Event, ...]
    spoken: bool
    day: date | None
    continues: bool = False


def blocks(events: Iterable[Event], zone: ZoneInfo = UTC) -> Iterator[LogBlock]:
    """Yield the blocks of events in chronological order, with a heading for each day of a zone."""
    shown: date | None = None
    groups = groupby(events, lambda each: (local_day(each.time, zone), each.type in SPOKEN))
    for (day, is_spoken), group in groups:
        if day != shown:
            yield LogBlock((), spoken=False, day=day)
            shown = day
        if is_spoken:
            before = None
            for event in group:
                continues = (
                    before is not None
                    and (before.nick, before.type, before.own)
                    == (event.nick, event.type, event.own)
                    and event.type is not EventType.ACTION  # its nick is part of the sentence
                    and event.time - before.time < _PAUSE
                )
                yield LogBlock((event,), spoken=True, day=None, continues=continues)
                before = event
        else:
            yield LogBlock(tuple(group), spoken=False, day=None)


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page rendered from a template, with `values` as its variables."""
    viewer = getattr(request.state, "viewer", None)  # None on pages that need no token
    query = request.scope["query_string"].decode("latin-1")
    path, tz = request.scope["path"], request.query_params.get("tz")
    html = _templates.get_template(template).render(
        path=path,
        here=quote(path) + (f"?{query}" if query else ""),
        viewer=viewer,
        zone=zone_of(request),
        # Without a choice, the browser tells its own zone (site.js).
        has_zone=bool(tz) or COOKIE in request.cookies,
        tz=tz if tz in zone_names() else None,  # links to related pages keep it
        **values,
    )
    return HTMLResponse(html, status)


def keep(request: Request, response: Response, cookie: str, value: str) -> None:
    """Store a value in a cookie of this browser, for a year, out of reach of scripts."""
    # Not strict: a browser would not send the cookie when it follows a link of another site here.
    response.set_cookie(
        cookie,
        value,
        max_age=_COOKIE_SECONDS,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


async def read_fields(request: Request) -> dict[str, list[str]]:
    """Return the fields of a URL-encoded form, each with all its values. Raises HTTPException 413
    for a long body."""
    body = await request.body()
    if len(body) > _MAX_FORM_BYTES:
        raise HTTPException(413, "That is too long for this form.")
    return parse_qs(body.decode("utf-8", "replace"))


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of such a form; the last one wins if a name is repeated."""
    return {name: values[-1] for name, values in (await read_fields(request)).items()}


def lines(events: Sequence[Event], zone: ZoneInfo) -> Markup:
    """Return events as HTML list items, with times in a zone."""
    return part("lines.html", blocks=list(blocks(events, zone)), zone=zone)


def part(template: str, **values: Any) -> Markup:
    """Return a part of a page, rendered from a template with `values` as its variables."""
    html = _templates.get_template(template).render(**values)
    return Markup(html)  # noqa: S704 - rendered with autoescape


def _ago(time: datetime) -> str:
    """Return roughly how long ago a time was, such as "2 days ago"."""
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
    "said": render_line,
    "plain": strip_formatting,
    "without_host": without_host,
    "multiline": plain_lines,
    "answer": answer_html,
    "happened": safe_description,
    "ago": _ago,
    "counted": counted,
    "colour": nick_colour,
    "permalink": permalink,
    "relative_permalink": relative_permalink,
    "channel_path": channel_path,
    "with_query": with_query,
    "day_path": day_path,
    "person_path": lambda nick, network=None: with_query(
        f"/person/{quote(nick, safe='')}", network=network
    ),
    "in_words": in_words,
    "nick_of": nick_of,
    "short": short,
    "local_day": local_day,
    "in_zone": lambda time, zone: f"{time.astimezone(zone):%a %d %b %Y, %H:%M}",
    "duration": lambda ms: f"{ms} ms" if ms < 1000 else f"{ms / 1000:,.1f} s",
    "size": lambda size: f"{size / 1e6:,.0f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB",
}
