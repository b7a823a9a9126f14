"""Bounds on the JSON schemas of a request.

An engine compiles a schema into a grammar before the first token. In llama.cpp this takes quadratic
time, cannot be interrupted and blocks all other requests, so that a few kilobytes can stop the
engine for minutes (denial of service). llama.cpp also silently ignores a whole schema because of
one pattern that it does not support.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_DEPTH = 64
"""Most levels of nesting in one schema."""

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose values are objects with arbitrary names as keys, and schemas as values."""

_ALTERNATIVES = ("anyOf", "oneOf", "allOf", "prefixItems")

MAX_SIZE: Mapping[str, int] = {
    "values": 20_000,
    "enum values": 500,
    "enum characters": 15_000,
    "properties": 1_000,
    "alternatives": 150,
    "characters in a pattern": 500,
    "characters in patterns": 2_000,
    "repetitions in patterns": 1_000,
}
"""The measures that make a grammar slow, and the upper bound of each for all schemas of one
request together; only that of the characters in a pattern is for each pattern."""

MAX_TOOLS = 128
"""Most tools of one request, OpenAI's own limit."""

# Syntax of ECMA-262, as JSON schemas use it, that Python's `re` does not have.
_PROPERTY = re.compile(r"\\[pP]\{[\w=-]{1,60}\}")
_CODE_POINT = re.compile(r"\\u\{[0-9a-fA-F]{1,6}\}|\\c[A-Za-z]")
_NAME_OF_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
_BACK_REFERENCE = re.compile(r"\\k<\w{1,60}>")


def require_shallow(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` if it is at most `MAX_DEPTH` levels deep. Raises ValueError for any other.

    Each level may have at most `MAX_SIZE["values"]` values.
    """
    # Level by level: a recursion could be driven to its limit by the nesting.
    level: list[Any] = [schema]
    for _ in range(MAX_DEPTH):
        if sum(map(len, level)) > (most := MAX_SIZE["values"]):
            raise ValueError(f"the JSON schemas are too large: at most {most} values")
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    return schema


def require_bounded(schemas: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError, which names the bound, unless all schemas together are within `MAX_SIZE`.

    Each must have passed `require_shallow`. A `pattern` that is not a regular expression is refused
    too.
    """
    total = Counter[str]()
    for schema in schemas:
        for part in _parts(schema):
            size = _size(part)
            total.update(size)
            total["characters in a pattern"] = size["characters in a pattern"]
            # Compared after each part, so that a huge schema is not read to its end.
            for name, most in MAX_SIZE.items():
                if total[name] > most:
                    raise ValueError(f"the JSON schemas are too large: at most {most} {name}")
            if isinstance(pattern := part.get("pattern"), str):
                # Syntax that Python lacks is replaced by something similar, then its parser
                # decides. It also refuses `a{5,2}`, on which llama.cpp would not terminate.
                alike = _CODE_POINT.sub("x", _PROPERTY.sub(r"\\w", pattern))
                alike = _NAME_OF_GROUP.sub("(?P<", _BACK_REFERENCE.sub("x", alike))
                try:
                    with warnings.catch_warnings(action="ignore"):  # it may change its syntax
                        re.compile(alike.replace("[^]", "."))
                except (re.error, RecursionError, OverflowError) as error:
                    deep = isinstance(error, RecursionError)
                    why = "it is nested too deeply" if deep else str(error)
                    text = f"pattern {pattern!r} is no regular expression: {why}"
                    raise ValueError(text) from None


def unsupported_pattern(schema: Mapping[str, Any]) -> str | None:
    """Return a `pattern` because of which llama.cpp would ignore the schema, None if there is none.

    llama.cpp supports patterns that are anchored at both ends and consist of literals, classes such
    as [0-9], groups, alternatives and repetitions.
    """
    for part in _parts(schema):
        pattern = part.get("pattern")
        if isinstance(pattern, str) and not is_supported_pattern(pattern):
            return pattern
    return None


# Groups such as (?= and (?P<, and escaped letters or digits other than \n and \r.
_UNKNOWN = re.compile(r"\(\?(?!:)|\\[a-mo-qs-zA-Z0-9]")


def is_supported_pattern(pattern: str) -> bool:
    """Return whether llama.cpp can compile `pattern` instead of ignoring its schema."""
    is_anchored = pattern.startswith("^") and pattern.endswith("$")
    return is_anchored and not _UNKNOWN.search(pattern)


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all its subschemas, but no data such as default values."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            yield part
            for key, value in part.items():
                # The keys of these objects are names: a property may be called `enum`.
                if key in _NAMED and isinstance(value, dict):
                    waiting += value.values()
                elif key not in ("const", "enum", "default", "examples"):
                    waiting.append(value)


def _size(part: Mapping[str, Any]) -> dict[str, int]:
    """Return the size of a schema without its subschemas, by the measures of `MAX_SIZE`."""
    enum, pattern = part.get("enum"), part.get("pattern")
    values = [*(enum if isinstance(enum, list) else ())]
    values += [part["const"]] if "const" in part else []
    length = len(pattern) if isinstance(pattern, str) else 0
    named = [part.get(key) for key in ("properties", "patternProperties")]
    listed = [part.get(key) for key in _ALTERNATIVES]
    return {
        "values": 1 + len(part),
        "enum values": len(values),
        # More values than the bound are refused anyway, and need not be measured.
        "enum characters": sum(len(str(value)) for value in values[: MAX_SIZE["enum values"]]),
        "properties": sum(len(each) for each in named if isinstance(each, dict)),
        "alternatives": sum(len(each) for each in listed if isinstance(each, list)),
        "characters in a pattern": length,
        "characters in patterns": length,
        "repetitions in patterns": _repetitions(pattern) if isinstance(pattern, str) else 0,
    }


# An escape, a class, a quantifier {m}, {m,} or {m,n}, or any other character.
_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d{1,9})(?:,(\d{0,9}))?\}|.", re.DOTALL)


def _repetitions(pattern: str) -> int:
    """Return how many copies of its parts a pattern's grammar has; nested repetitions multiply.

    Only pieces with a quantifier `{m,n}` count.
    """
    # `last` counts the latest piece, which a quantifier may still multiply, and `total` the pieces
    # before it in the same group; `outer` has the totals of the enclosing groups.
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
