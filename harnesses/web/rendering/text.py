"""Conversion of untrusted text to safe HTML: lines from IRC, and the Markdown of a model."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import replace

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis
from markupsafe import Markup, escape

from llm.web.links import without_punctuation
from storage.chat_log.event import Event, describe_event, event_line

NICK_COLOURS = 12
# Codes of mIRC colours with their numbers (modern.ircdocs.horse/formatting); all other formatting
# is single control characters.
_FORMATTING = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9A-Fa-f]{6})?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Direction overrides could make an address or a command look like another.
_BIDI = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_ADDRESS = re.compile(r"https?://[^\s<>\"'`]+", re.IGNORECASE)
_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_markdown = (
    # Models that are asked for plain text write "&lt;" and "C:\\*.txt" as they mean them.
    MarkdownIt("commonmark", {"html": False})
    .enable(["table", "strikethrough"])
    .disable(["entity", "escape"])
)


def _emphasize(state: StateInline, silent: bool) -> bool:
    """Read the marks of emphasis that stand at an edge of words, and leave `__init__.py` and 2*3*4
    as they are."""
    run = _MARKS.match(state.src, state.pos)
    if run is None:
        return False
    before, after = state.src[: run.start()][-1:], state.src[run.end() :][:1]
    is_at_edge = not before.strip("([\"'*_~") or not after.strip(")]\"'*_~.,;:!?")
    if is_at_edge or not (before.strip() and after.strip()):
        return emphasis.tokenize(state, silent)
    state.pending += "" if silent else run[0]
    state.pos = run.end()
    return True


_MARKS = re.compile(r"\*+|_+")
_markdown.inline.ruler.at("emphasis", _emphasize)


def strip_formatting(text: str) -> str:
    """Return text without control characters, IRC formatting and direction overrides."""
    return _BIDI.sub("", _CONTROL.sub("", _FORMATTING.sub("", text)))


def safe_description(event: Event) -> str:
    """Return a description of what the nick of an event did, with formatting stripped."""
    return describe_event(_strip_event(event))


def plain_line(event: Event) -> str:
    """Return an event as a line of plain text, without its time."""
    return event_line(_strip_event(event))


def _strip_event(event: Event) -> Event:
    return replace(
        event,
        nick=strip_formatting(event.nick),
        text=strip_formatting(event.text),
        target=strip_formatting(event.target),
    )


def render_line(text: str, marks: Sequence[tuple[int, int]] = ()) -> Markup:
    """Return a line of IRC as HTML, with URLs as links.

    `marks` are the ranges of `text` to highlight, as (start, end), in order and disjoint.
    """
    shown, marked, position = "", [], 0
    for start, end in marks:  # as ranges of what is left without formatting
        shown += strip_formatting(text[position:start])
        begin = len(shown)
        shown += strip_formatting(text[start:end])
        marked.append((begin, len(shown)))
        position = end
    shown += strip_formatting(text[position:])
    link = Markup('<a href="{}" rel="noopener noreferrer nofollow ugc">{}</a>')
    parts, position = [], 0
    for match in _ADDRESS.finditer(shown):
        address = without_punctuation(match.group())
        end = match.start() + len(address)
        parts.append(_highlight(shown, position, match.start(), marked))
        parts.append(link.format(address, _highlight(shown, match.start(), end, marked)))
        position = end
    return Markup().join([*parts, _highlight(shown, position, len(shown), marked)])


def answer_html(text: str) -> Markup:
    """Return a model's Markdown as HTML, without raw HTML, images and scripts."""
    # The parser escapes raw HTML already, so for that the sanitizer is a second line of defence. It
    # also removes images, whose URLs a browser would fetch unasked, and unsafe links.
    html = nh3.clean(
        _markdown.render(plain_lines(text)),
        tags=_TAGS,
        attributes={"a": {"href", "title"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(html)  # noqa: S704 - nh3 has just cleaned it


def plain_lines(text: str) -> str:
    """Return text as `strip_formatting` does, but with its line breaks and tabs."""
    return "".join(
        part if part in "\n\t" else strip_formatting(part) for part in re.split(r"([\n\t])", text)
    )


def nick_colour(nick: str) -> int:
    """Return the colour number of a nick, from 0 to `NICK_COLOURS` - 1.

    It ignores case and the suffixes of alternative nicks ("ada_", "ada2").
    """
    # Not `hash`, which differs between processes.
    name = nick.lower().rstrip("_`^0123456789-|")
    return zlib.crc32((name or nick).encode()) % NICK_COLOURS


def _highlight(text: str, begin: int, end: int, marks: Sequence[tuple[int, int]]) -> Markup:
    """Return `text[begin:end]` as HTML, with those parts of the marks that are in it."""
    parts, position = [], begin
    for start, stop in marks:
        start, stop = max(start, begin), min(stop, end)
        if start < stop:
            parts.append(escape(text[position:start]))
            parts.append(Markup("<mark>{}</mark>").format(text[start:stop]))
            position = stop
    return Markup().join([*parts, escape(text[position:end])])
