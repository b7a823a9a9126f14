"""Reader of channel logs with hand-annotated reply links.

`NAME.raw.txt` is a log with one message per line; in `NAME.annotation.txt`, `A B -` means that
line B (counted from 0) replies to line A, and `B B -` that line B starts a conversation.
"""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SAID = re.compile(r"\[(\d\d):(\d\d)\] (?:<([^>]*)> ?(.*)|\s*\* (\S+) ?(.*))$", re.DOTALL)
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Said:
    """A message; `minute` counts from midnight of the log's first day."""

    nick: str
    text: str
    minute: int


@dataclass(frozen=True, slots=True)
class Annotated:
    """One annotated log: its parsed lines (None if irrelevant) and the reply links, as pairs of
    line indexes (earlier, reply)."""

    name: str
    lines: list[Said | None]
    links: list[tuple[int, int]]


@contextmanager
def folder(split: str = "") -> Iterator[Path]:
    """Yield the folder of a `split` (by default `SPLIT`) in `DATA`; an unpacked archive is deleted
    on exit."""
    data = Path(os.environ.get("DATA", "../shared/data"))
    split = split or os.environ.get("SPLIT", "dev")
    with tempfile.TemporaryDirectory() as unpacked:
        archive = data / "ubuntu-irc.tar.xz"
        if archive.exists():
            with tarfile.open(archive) as files:
                files.extractall(unpacked, filter="data")
            data = Path(unpacked)
        places = (data / "ubuntu-irc" / split, data / split, data)
        yield next((each for each in places if any(each.glob("*.raw.txt"))), data)


def annotated(folder: Path) -> Iterator[Annotated]:
    """Yield the annotated logs of a folder, sorted by name."""
    for path in sorted(folder.glob("*.raw.txt")):
        name = path.name.removesuffix(".raw.txt")
        links = (folder / f"{name}.annotation.txt").read_text(encoding="utf-8").splitlines()
        pairs = [(int(a), int(b)) for a, b, *_ in map(str.split, links)]
        yield Annotated(name, list(_read(path)), pairs)


def _read(path: Path) -> Iterator[Said | None]:
    day = last = 0
    for raw in path.read_bytes().split(b"\n"):
        line = raw.decode("utf-8", "replace")
        if match := _SAID.match(line):
            minute = int(match[1]) * 60 + int(match[2])
            # A clock that jumps back by over half a day has passed midnight; a smaller jump is
            # the log's own disorder.
            day += minute < last - _DAY // 2
            last = minute
            nick, text = (match[3], match[4]) if match[3] is not None else (match[5], match[6])
            yield Said(nick, text, minute + day * _DAY)
        else:
            yield None
