"""Recall of the asker's conversation among the lines selected by threads, against the last lines.

A sample is an annotated line with earlier lines in its conversation; coverage is the share of
those earlier lines that are selected, averaged over the samples. It is measured with and without
the nicks that the line mentions, because a question to the bot mentions nobody else.

`DATA` (default `../shared/data`) is a folder with files in the format of `context_data`, a folder
of such folders, from which `SPLIT` (default `dev`) selects one, or a folder with
`ubuntu-irc.tar.xz`.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from benchmarks.context_data import Annotated, Said, annotated, follow, stripped
from benchmarks.figure import Figure
from llm.threads.channel_threads import Threads
from llm.threads.model import MIN_RANKING_SCORE

_SIZES = {20: (88, 86), 50: (96.5, 96)}  # lines: goals in percent, mentions kept and ignored
_WORSE = 2  # goal: percentage points behind the window, in the worst file

Coverage = dict[tuple[str, int], list[float]]


@dataclass(slots=True)
class Measured:
    """Coverage in percent by selection method and number of lines, and the time spent."""

    coverage: Coverage = field(default_factory=lambda: defaultdict(list))
    added: list[int] = field(default_factory=list)  # selected lines that are not in the last 50
    selection: list[float] = field(default_factory=list)  # ms each
    lines: int = 0
    following: float = 0.0  # seconds of processor time spent on recording lines


async def figures() -> AsyncIterator[Figure]:
    """Yield the coverage, the worst file's, and the time per selection and per line."""
    with folder() as path:
        measured = [_measure(file) for file in annotated(path)]
    if not measured:
        print("  skipped: DATA and SPLIT name no folder with *.raw.txt and *.annotation.txt")
        return
    for size, goals in _SIZES.items():
        least = dict(zip(("kept", "ignored"), goals, strict=True))
        for way in ("window", "kept", "ignored", "removed"):
            name = f"coverage, {size} lines, {_NAMES[way]}"
            values = [value for each in measured for value in each.coverage[way, size]]
            yield Figure(name, fmean(values), "%", least=least.get(way))
        worst = max(_behind(each, size) for each in measured)
        yield Figure(f"behind the last {size} lines in the worst file", worst, "%", goal=_WORSE)
    shown = [value for each in measured for value in each.coverage["shown", 50]]
    added = [value for each in measured for value in each.added]
    yield Figure("coverage, the last 50 and what is added to them", fmean(shown), "%")
    yield Figure("lines added to the last 50, mean", fmean(added), "")
    selections = [each for one in measured for each in one.selection]
    yield Figure("a selection, mean", fmean(selections), "ms", goal=2)
    spent = sum(each.following for each in measured) * 1000
    yield Figure("a line", spent / sum(each.lines for each in measured), "ms", goal=0.3)


_NAMES = {
    "window": "the last ones",
    "kept": "asker's mentions kept",
    "ignored": "mentions ignored",
    "removed": "named nicks taken out of the text",
}


@contextmanager
def folder() -> Iterator[Path]:
    """Yield the folder selected by `DATA` and `SPLIT`; an unpacked archive is deleted on exit."""
    data = Path(os.environ.get("DATA", "../shared/data"))
    split = os.environ.get("SPLIT", "dev")
    with tempfile.TemporaryDirectory() as unpacked:
        archive = data / "ubuntu-irc.tar.xz"
        if archive.exists():
            with tarfile.open(archive) as files:
                files.extractall(unpacked, filter="data")
            data = Path(unpacked)
        places = (data / "ubuntu-irc" / split, data / split, data)
        yield next((each for each in places if any(each.glob("*.raw.txt"))), data)


def _measure(file: Annotated) -> Measured:
    samples, threads, measured = file.samples(), Threads(), Measured()
    began = time.process_time()
    for index, said, numbers in follow(file, threads):
        measured.lines += 1
        if index in samples:
            measured.following += time.process_time() - began
            wanted = {numbers[line] for line in samples[index]}
            _choose(threads, said, wanted, len(numbers), measured)
            began = time.process_time()
    measured.following += time.process_time() - began
    return measured


def _choose(
    threads: Threads, said: Said, wanted: set[int], before: int, measured: Measured
) -> None:
    """Select lines for one question with each method and record their coverage.

    `wanted` has the numbers of the other lines of its conversation, `before` counts all lines so
    far.
    """
    began = time.process_time()
    kept = threads.find_related(said.nick, said.text, said.minute, max(_SIZES))
    measured.selection.append((time.process_time() - began) * 1000)
    text = stripped(said.text, threads.people)
    window = set(range(before - 50, before))
    added = threads.find_related(said.nick, text, said.minute, 50, MIN_RANKING_SCORE)
    measured.added.append(len(set(added) - window))
    measured.coverage["shown", 50].append(100 * len(wanted & window.union(added)) / len(wanted))
    chosen = {
        "window": list(range(before - 1, -1, -1)),
        "kept": kept,
        "ignored": _ignoring(threads, said),
        "removed": threads.find_related(said.nick, text, said.minute, max(_SIZES)),
    }
    for way, lines in chosen.items():
        for size in _SIZES:
            share = len(wanted.intersection(lines[:size])) / len(wanted)
            measured.coverage[way, size].append(100 * share)


def _ignoring(threads: Threads, said: Said) -> list[int]:
    """Return what `find_related` does, ignoring the people that the line mentions.

    Unlike with `stripped`, the nicks stay in the text and count as ordinary words.
    """
    line = threads.utterance(said.nick, said.text, said.minute)
    return threads.related_to(replace(line, addressee=None, named=frozenset()), max(_SIZES))


def _behind(measured: Measured, size: int) -> float:
    """Return how many percentage points the worse of the two methods with goals is behind the
    window."""
    window = fmean(measured.coverage["window", size])
    return window - min(fmean(measured.coverage[way, size]) for way in ("kept", "ignored"))
