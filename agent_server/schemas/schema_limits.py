"""Bounds on the JSON schemas of a request.

An engine compiles a schema into a grammar before the first token. llama.cpp takes quadratic time
for it, which nothing interrupts and for which all other requests wait; a few kilobytes are enough
to stop it for minutes. And it ignores a whole schema silently for one pattern that it does not
know.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

DEEPEST = 64
"""Levels of nesting in one schema."""

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value has names of the client's own as keys."""

_ALTERNATIVES = ("anyOf", "oneOf", "allOf", "prefixItems")


@dataclass(frozen=True, slots=True)
class SchemaSize:
    """The size of schemas, by what makes their grammar slow."""

    values: int = 0
    enum_values: int = 0
    enum_characters: int = 0
    properties: int = 0
    alternatives: int = 0
    longest_pattern: int = 0
    pattern_characters: int = 0
    pattern_repetitions: int = 0

    def __add__(self, other: SchemaSize) -> SchemaSize:
        """Return the size of both."""
        added = {
            each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)
        }
        longest = max(self.longest_pattern, other.longest_pattern)
        return SchemaSize(**{**added, "longest_pattern": longest})


MOST = SchemaSize(
    values=20_000,
    enum_values=500,
    enum_characters=15_000,
    properties=1_000,
    alternatives=150,
    longest_pattern=500,
    pattern_characters=2_000,
    pattern_repetitions=1_000,
)
"""The largest schemas of one request, all together."""

MOST_TOOLS = 128
"""Tools of one request: the API's own limit."""


def require_shallow(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of at most `DEEPEST` levels and `MOST.values` values in each.

    Raises ValueError for any other.
    """
    level: list[Any] = [schema]
    for _ in range(DEEPEST):
        if sum(map(len, level)) > MOST.values:
            raise ValueError(f"the JSON schemas are too large: at most {MOST.values} values")
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    return schema


def require_bounded(schemas: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError, which names the bound, unless all these schemas together are within `MOST`.

    They must be shallow. A `pattern` that is no regular expression is refused too.
    """
    total = SchemaSize()
    for schema in schemas:
        for part in _parts(schema):
            total += _size(part)
            for each in fields(SchemaSize):
                if getattr(total, each.name) > (most := getattr(MOST, each.name)):
                    name = each.name.replace("_", " ")
                    raise ValueError(f"the JSON schemas are too large: at most {most} {name}")
            if isinstance(pattern := part.get("pattern"), str):
                _require_valid(pattern)


def unfollowed_pattern(schema: Mapping[str, Any]) -> str | None:
    """Return a `pattern` for which llama.cpp ignores the schema; None when it follows them all.

    It knows patterns that are anchored at both ends, of literals, classes as [0-9], groups,
    alternatives and repetitions.
    """
    for part in _parts(schema):
        pattern = part.get("pattern")
        if isinstance(pattern, str) and not is_followed(pattern):
            return pattern
    return None


_UNKNOWN = re.compile(r"\(\?(?!:)|\\[a-mo-qs-zA-Z0-9]")


def is_followed(pattern: str) -> bool:
    """Return whether llama.cpp makes a grammar of `pattern`, rather than ignore the schema."""
    is_anchored = pattern.startswith("^") and pattern.endswith("$")
    return is_anchored and not _UNKNOWN.search(pattern)


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it, but no data such as default values."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            yield part
            for key, value in part.items():
                if key in _NAMED and isinstance(value, dict):
                    waiting += value.values()
                elif key not in ("const", "enum", "default", "examples"):
                    waiting.append(value)


def _size(part: Mapping[str, Any]) -> SchemaSize:
    """Return the size of a schema without those in it."""
    enum = part.get("enum")
    values = [*(enum if isinstance(enum, list) else ())]
    values += [part["const"]] if "const" in part else []
    pattern = part.get("pattern")
    length = len(pattern) if isinstance(pattern, str) else 0
    return SchemaSize(
        values=1 + len(part),
        enum_values=len(values),
        enum_characters=sum(len(str(value)) for value in values[: MOST.enum_values]),
        properties=sum(_count(part, key, dict) for key in ("properties", "patternProperties")),
        alternatives=sum(_count(part, key, list) for key in _ALTERNATIVES),
        longest_pattern=length,
        pattern_characters=length,
        pattern_repetitions=_repetitions(pattern) if isinstance(pattern, str) else 0,
    )


def _count(part: Mapping[str, Any], key: str, kind: type[dict[Any, Any] | list[Any]]) -> int:
    value = part.get(key)
    return len(value) if isinstance(value, kind) else 0


_PROPERTY = re.compile(r"\\[pP]\{[\w=-]{1,60}\}")
_CODE_POINT = re.compile(r"\\u\{[0-9a-fA-F]{1,6}\}|\\c[A-Za-z]")

_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d{1,9})(?:,(\d{0,9}))?\}|.", re.DOTALL)


def _repetitions(pattern: str) -> int:
    """Return how often a pattern's grammar repeats its parts, nested repetitions multiplied.

    Of a piece that is not repeated by `{m,n}` nothing is counted.
    """
    total, last, outer = 0, 0, list[int]()
    for piece in _PIECE.finditer(pattern):
        if piece[0] == "(":
            outer.append(total + last)
            total = last = 0
        elif piece[0] == ")" and outer:
            total, last = outer.pop(), total + last
        elif piece[1] is not None:
            last = max(1, last) * max(int(piece[1]), int(piece[2] or 0))
        elif piece[0] not in "*+?":
            total, last = total + last, 0
    return total + last + sum(outer)


_NAME_OF_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
_BACK_REFERENCE = re.compile(r"\\k<\w{1,60}>")


def _require_valid(pattern: str) -> None:
    """Raise ValueError unless a pattern is valid in ECMA-262, the language of JSON schemas.

    Python's parser is asked, after what only ECMA-262 has was replaced by something alike.
    """
    alike = _CODE_POINT.sub("x", _PROPERTY.sub(r"\\w", pattern))
    alike = _NAME_OF_GROUP.sub("(?P<", _BACK_REFERENCE.sub("x", alike)).replace("[^]", ".")
    try:
        with warnings.catch_warnings(action="ignore"):  # of what a later Python may mean by it
            re.compile(alike)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"pattern {pattern!r} is no regular expression: {reason}") from None
