"""The verdict on a turn, by rules: was it worse than a plain chat with the same model and log?

A turn is worse if the model was not asked, though no whole command was given; if it lacked a tool
or one failed; if it answered without having seen the lines that the question is about; or if people
did not get the whole answer, and nothing told them so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from benchmarks.strong.stage import ZONE
from benchmarks.strong.upstream import WINDOW, Asked, Played

_WORD = re.compile(r"\w+")
_FENCE = re.compile(r"^```\w*$", re.MULTILINE)
_MARKED = re.compile(r"\bcut (?:off|short|here)\b")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was measured of a turn.

    `lines` and `tokens` are those of its first prompt, `shared` is the percentage of it that began
    the previous one on the channel (None: there was none). `written` are the characters of the
    answer's words, `reached` those that people got. `reasons` say why it is worse than plain.
    """

    number: int
    name: str
    lines: int
    tokens: int
    shared: float | None
    tools: tuple[str, ...]
    has_clock: bool
    written: int
    reached: int
    reasons: tuple[str, ...]

    @property
    def row(self) -> str:
        """The turn as a line of the table."""
        shared = "-" if self.shared is None else f"{self.shared:.0f}%"
        share = f"{100 * self.tokens / WINDOW:.1f}%"
        clock = "yes" if self.has_clock else "no"
        end = "; ".join(self.reasons)
        return (
            f"  {self.number:>3} {self.name[:40]:<40} {self.lines:>5} {self.tokens:>7,} {share:>6}"
            f" {shared:>6} {len(self.tools):>5} {clock:>5} {self.reached:>6}/{self.written:<6}"
            f" {'WORSE: ' + end if self.reasons else 'ok'}"
        )


HEADING = (
    f"  {'':>3} {'turn':<40} {'lines':>5} {'tokens':>7} {'window':>6} {'shared':>6} {'tools':>5}"
    f" {'clock':>5} {'read':>6}/{'written':<6}"
)


def verdict(played: Played, got: str, previous: Asked | None) -> Verdict:
    """Return the verdict on a turn: how it was played, what people `got` to read, and the previous
    first prompt on the same channel."""
    turn, first = played.turn, next(iter(played.requests), None)
    written = _words(played.turn.expected if turn.read else played.written or turn.expected)
    reached = _in_order(written, _words(got))
    shared = None
    if first and previous:
        shared = 100 * first.shared_with(previous) / first.tokens
    return Verdict(
        turn.number,
        turn.name,
        first.lines if first else 0,
        first.tokens if first else 0,
        shared,
        tuple(tool["function"]["name"] for tool in first.tools) if first else (),
        first is not None and _has_clock(first),
        sum(map(len, written)),
        reached,
        tuple(_reasons(played, got, sum(map(len, written)) - reached)),
    )


def _reasons(played: Played, got: str, lost: int) -> Iterator[str]:
    turn = played.turn
    if not played.requests:
        if not turn.by_rule:
            yield "the model was not asked"
        return
    seen = played.requests[-1].text
    for name in dict.fromkeys(played.missing):
        yield f"no tool {name}"
    for why in dict.fromkeys(played.failed):
        yield f"a tool failed: {why}"
    for words in turn.shows:
        if words not in seen:
            yield f"not shown: {words}"
    for words in turn.hides:
        if words in played.requests[0].text:
            yield f"shown: {words}"
    if turn.image and "image_url" not in seen:
        yield "the picture was not passed on"
    if lost and not _MARKED.search(got):
        yield f"{lost} characters of the answer lost, unmarked"
    if not _has_clock(played.requests[0]):
        yield "no date and zone"


def _has_clock(asked: Asked) -> bool:
    today = datetime.now(ZoneInfo(ZONE))
    return f"{today:%Y-%m-%d}" in asked.text and ZONE in asked.text


def _words(text: str) -> list[str]:
    """Return the words of a text, without the marks of Markdown, which people need not see."""
    return _WORD.findall(_FENCE.sub("", text))


def _in_order(written: Sequence[str], got: Sequence[str]) -> int:
    """Return the characters of the words that were got, in the order in which they were written."""
    reached, place = 0, 0
    for word in written:
        try:
            place = got.index(word, place) + 1
        except ValueError:
            continue
        reached += len(word)
    return reached
