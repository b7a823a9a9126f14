"""Lenient JSON parser for the output of small models: single quotes, trailing commas, bare keys,
Python literals, truncated input.

A single-pass recursive descent: it reports where a value ends and when more input is needed, and
never turns prose into a value, since the result may become a tool call (docs/decisions/0009).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

_MAX_DEPTH = 32  # nested brackets: bounds the recursion
# The quantifiers are possessive: without backtracking, hostile text takes linear time.
_SPACE = re.compile(r"[ \t\r\n]*+")
_STRINGS = {
    '"': re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL),
}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?+")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_ENDS = {"{": "}", "[": "]", "(": ")"}


class ParseError(Exception):
    """The text is not a value, whatever follows."""


class IncompleteJson(Exception):
    """The text ends before the value does."""


@dataclass(frozen=True, slots=True)
class ParsedValue:
    """A value and the index after it; `truncated` if its missing end was filled in."""

    value: Any
    end: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """The positional and named arguments of a call, and the index after the closing bracket."""

    positional: tuple[Any, ...]
    named: dict[str, Any]
    end: int
    truncated: bool = False


def read_value(text: str, start: int = 0, *, final: bool = True) -> ParsedValue:
    """Parse the value at `start`, after optional whitespace.

    Raises ParseError, and IncompleteJson if the text ends too early. With `final`, when no more
    text will follow, an open object, list or string is closed instead.
    """
    reader = _Reader(text, start, final)
    return ParsedValue(reader.value(), reader.at, reader.truncated)


def read_arguments(text: str, start: int, *, final: bool = True) -> ParsedArguments:
    """Parse the parenthesised arguments at `start`, such as `(1, x="a")`.

    Raises ParseError and IncompleteJson, as `read_value` does.
    """
    reader = _Reader(text, start, final)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for key, value in reader.items("="):
        if key is None:
            positional.append(value)
        else:
            named[key] = value
    return ParsedArguments(tuple(positional), named, reader.at, reader.truncated)


class _Reader:
    def __init__(self, text: str, start: int, final: bool) -> None:
        self._text = text
        self._final = final
        self._depth = 0
        self.at = start
        self.truncated = False

    def value(self) -> Any:
        first = self._next()
        if first in _STRINGS:
            return self._string(first)
        if first == "{":
            return {key: value for key, value in self.items(":") if key is not None}
        if first == "[":
            return [value for key, value in self.items("") if key is None]
        return self._word_or_number()

    def items(self, between: str) -> list[tuple[str | None, Any]]:
        """Parse the items in brackets; `between` separates a key from its value, "" for no keys."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ParseError
        opening = self._next()
        end = _ENDS[opening]
        self.at += 1
        found: list[tuple[str | None, Any]] = []
        while not self._at_close(end):
            try:
                key = self._key(between, needed=opening == "{") if between else None
                found.append((key, self.value()))
            except IncompleteJson:
                if not self._final:
                    raise
                # Drop a key without value, and half a word or number, which may be another one.
                self.truncated = True
                break
            self._comma(end)
        self._depth -= 1
        return found

    def _next(self) -> str:
        """Skip whitespace and return the next character. Raises IncompleteJson at the end."""
        self._skip()
        if self.at >= len(self._text):
            raise IncompleteJson
        return self._text[self.at]

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self.at)
        assert match is not None
        self.at = match.end()

    def _at_close(self, end: str) -> bool:
        """Return whether the brackets end here, by `end` or because the final text is truncated."""
        self._skip()
        if self.at >= len(self._text):
            if not self._final:
                raise IncompleteJson
            self.truncated = True
            return True
        if self.truncated or self._text[self.at] != end:
            return self.truncated
        self.at += 1
        return True

    def _comma(self, end: str) -> None:
        self._skip()
        if self.truncated or self.at >= len(self._text):
            return
        if self._text[self.at] == ",":
            self.at += 1
        elif self._text[self.at] != end:
            raise ParseError

    def _key(self, between: str, *, needed: bool) -> str | None:
        first = self._next()
        if first in _STRINGS and needed:
            key = self._string(first)
        elif match := _WORD.match(self._text, self.at):
            key, before, self.at = match[0], self.at, match.end()
            if not needed and self._after_word() != between:
                self.at = before
                return None
        elif needed:
            raise ParseError
        else:
            return None
        if self.truncated:
            raise IncompleteJson
        if self._next() != between:
            raise ParseError
        self.at += 1
        return key

    def _after_word(self) -> str:
        """Return the next character after a bare word, "" at the end of the final text."""
        if self.at >= len(self._text) and not self._final:
            raise IncompleteJson
        self._skip()
        if self.at >= len(self._text):
            if not self._final:
                raise IncompleteJson
            return ""
        return self._text[self.at]

    def _string(self, quote: str) -> str:
        match = _STRINGS[quote].match(self._text, self.at)
        if match is None:
            if not self._final:
                raise IncompleteJson
            inner, self.at, self.truncated = self._text[self.at + 1 :], len(self._text), True
        else:
            inner, self.at = match[1], match.end()
        return _unescape(inner, quote)

    def _word_or_number(self) -> Any:
        match = _WORD.match(self._text, self.at) or _NUMBER.match(self._text, self.at)
        if match is None or not match[0]:
            raise self._nothing()
        if match.end() == len(self._text):
            # One more character could turn it into another word or number.
            raise IncompleteJson
        self.at = match.end()
        if match[0] in _WORDS:
            return _WORDS[match[0]]
        if match[0][0].isalpha() or match[0][0] == "_":
            raise ParseError
        return _number(match[0])

    def _nothing(self) -> Exception:
        """Return the error for text that is not a value; a final "-" may still become a number."""
        return IncompleteJson() if self._text[self.at :] == "-" else ParseError()


def _number(text: str) -> int | float:
    if len(text) > 40:
        raise ParseError
    number = int(text) if text.lstrip("-").isdigit() else float(text)
    if math.isinf(number):  # such as 1e999: JSON cannot express infinity
        raise ParseError
    return number


def _unescape(inner: str, quote: str) -> str:
    """Resolve the escapes of a string; one with an invalid escape is returned as written."""
    if "\\" not in inner:
        return inner
    text = inner.replace("\\'", "'") if quote == "'" else inner
    try:
        value = json.loads('"' + re.sub(r'(?<!\\)"', r"\"", text) + '"', strict=False)
    except ValueError:
        return inner
    return str(value)
