"""What a piece of a reply turns out to be; the readers of tags and lines return one of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llm.messages.message import ToolCall

LONGEST = 20_000
"""Characters of a call; a longer one is not read."""


@dataclass(frozen=True, slots=True)
class NeedMore:
    """It cannot be told before more has come: anything, or at least the text `until`."""

    until: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """So many characters are text."""

    length: int


@dataclass(frozen=True, slots=True)
class Calls:
    """So many characters are calls; while not `sure`, text that follows makes an example of it."""

    calls: Sequence[ToolCall]
    length: int
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Code:
    """So many characters open code, which a line with the `fence` closes."""

    length: int
    fence: str


@dataclass(frozen=True, slots=True)
class QuotedLine:
    """The line repeats what somebody else has said."""


Reading = NeedMore | Text | Calls | Code | QuotedLine
