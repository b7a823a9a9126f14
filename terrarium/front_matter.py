"""Front matter: the keys at the head of a Markdown file, between two lines `---`.

It is a small part of YAML: `key: value` on a line, a list as `[a, b]` or as lines `- item` below
the key, quotes around a value that would mean something else, `#` before a remark. Whatever else
YAML has (maps in maps, values over several lines) is an error that says where.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from terrarium.config import ConfigError

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""What the `name` of a persona or a skill looks like."""

_FENCE = "---"
_PAIR = re.compile(r"([A-Za-z_][\w-]*)\s*:(?:\s+(.*))?")
_ITEM = re.compile(r"\s*-\s+(.*)")
_QUOTED = re.compile(r""""((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'""")
_LAST = re.compile(rf"(?:{_QUOTED.pattern})\s*(?:#.*)?")
_ITEM_END = re.compile(r"[],]")
_MOST = 100_000  # characters of a file

Value = str | list[str]
M = TypeVar("M", bound=BaseModel)


def parse(kind: type[M], path: Path) -> tuple[M, str]:
    """The keys at the head of a file as `kind`, and the text below them.

    Raises ConfigError, which names the file and the key, and for an unknown one the nearest.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if len(text) > _MOST:
        raise ConfigError(f"{path} is too long: {len(text):,} characters")
    try:
        values, body = split(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    known = list(kind.model_fields)
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise ConfigError(f'{path}: unknown key "{key}"; the nearest known key is "{near}"')
    try:
        return kind.model_validate(values), body
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{path}: {key}: {reason}") from error


def split(text: str) -> tuple[dict[str, Value], str]:
    """The keys of a text and what is below them; a text without front matter is all below.

    Raises ValueError.
    """
    first, *lines = re.split(r"\r?\n", text)
    if first.rstrip() != _FENCE:
        return {}, text.strip()
    for end, line in enumerate(lines):
        if line.rstrip() == _FENCE:
            return _keys(lines[:end]), "\n".join(lines[end + 1 :]).strip()
    raise ValueError(f"the front matter has no end: a line {_FENCE} is missing")


def _keys(lines: list[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    key = ""
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        items = found.get(key)
        if (item := _ITEM.fullmatch(line)) and isinstance(items, list):
            items.append(_scalar(item[1], number))
        elif pair := _PAIR.fullmatch(line.rstrip()):
            key = pair[1]
            if key in found:
                raise ValueError(f"line {number}: {key} is there twice")
            found[key] = _value(pair[2] or "", number)
        else:
            raise ValueError(f'line {number}: write "key: value", or "- item" below a key')
    return found


def _value(text: str, number: int) -> Value:
    """A value; a key with nothing behind it begins a list."""
    text = text.strip()
    if not text or text.startswith("#"):
        return []
    if text[0] == "[":
        return _inline(text, number)
    if text[0] in "{|>&*!%@`":
        raise ValueError(f'line {number}: a value may not begin with {text[0]}; put it into "..."')
    return _scalar(text, number)


def _inline(text: str, number: int) -> list[str]:
    """The items of a list on one line."""
    rest, items = text[1:].lstrip(), []
    while rest and rest[0] != "]":
        quoted = _QUOTED.match(rest) if rest[0] in "\"'" else None
        end = _ITEM_END.search(rest, quoted.end() if quoted else 0)
        if end is None:
            break
        items.append(_scalar(rest[: end.start()].strip(), number))
        rest = rest[end.start() :].removeprefix(",").lstrip()
    if not rest or not re.fullmatch(r"\]\s*(#.*)?", rest):
        raise ValueError(f"line {number}: the list has no end: ] is missing")
    return items


def _scalar(text: str, number: int) -> str:
    if text[:1] in ("'", '"'):
        quoted = _LAST.fullmatch(text)
        if quoted is None:
            raise ValueError(f"line {number}: a quote is not closed")
        if quoted[1] is not None:
            return re.sub(r"\\(.)", lambda each: "\n" if each[1] == "n" else each[1], quoted[1])
        return quoted[2].replace("''", "'")
    return re.split(r"\s#", text, maxsplit=1)[0].strip()
