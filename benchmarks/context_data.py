"""Reader of channel logs with hand-annotated reply links.

`NAME.raw.txt` is a log with one message per line; in `NAME.annotation.txt`, `A B -` means that
line B (counted from 0) replies to line A, and `B B -` that line B starts a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llm.threads.channel_threads import People, Threads

_SAID = re.compile(r"\[(\d\d):(\d\d)\] (?:<([^>]*)> ?(.*)|\s*\* (\S+) ?(.*))$", re.DOTALL)
_RENAMED = re.compile(r"=== (\S+) .*?is now known as (\S+)")
_JOINED = re.compile(r"=== (\S+) .*has joined")
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Said:
    """A message; `minute` counts from midnight of the log's first day."""

    nick: str
    text: str
    minute: int


@dataclass(frozen=True, slots=True)
class Renamed:
    """A nick change."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A join."""

    nick: str


@dataclass(frozen=True, slots=True)
class Annotated:
    """One annotated log: its parsed lines (None if irrelevant) and the reply links, as pairs of
    line indexes (earlier, reply)."""

    name: str
    lines: list[Said | Renamed | Joined | None]
    links: list[tuple[int, int]]

    def samples(self) -> dict[int, set[int]]:
        """Return, by annotated message, the earlier messages of its conversation.

        A conversation is a connected component of the links. Messages without earlier ones in
        their conversation are left out.
        """
        # Union-find with explicit sets: all lines of a component share one set object.
        conversations: dict[int, set[int]] = {}
        for first, second in self.links:
            a, b = (conversations.setdefault(each, {each}) for each in (first, second))
            if a is not b:
                a |= b
                conversations.update(dict.fromkeys(b, a))
        found = {}
        for line in sorted({second for _, second in self.links if self._said(second)}):
            earlier = {each for each in conversations[line] if each < line and self._said(each)}
            if earlier:
                found[line] = earlier
        return found

    def _said(self, line: int) -> bool:
        return line < len(self.lines) and isinstance(self.lines[line], Said)


def annotated(folder: Path) -> Iterator[Annotated]:
    """Yield the annotated logs of a folder, sorted by name."""
    for path in sorted(folder.glob("*.raw.txt")):
        name = path.name.removesuffix(".raw.txt")
        links = (folder / f"{name}.annotation.txt").read_text(encoding="utf-8").splitlines()
        pairs = [(int(a), int(b)) for a, b, *_ in map(str.split, links)]
        yield Annotated(name, list(_read(path)), pairs)


def _read(path: Path) -> Iterator[Said | Renamed | Joined | None]:
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
        elif match := _RENAMED.match(line):
            yield Renamed(match[1], match[2])
        elif match := _JOINED.match(line):
            yield Joined(match[1])
        else:
            yield None


def follow(file: Annotated, threads: Threads) -> Iterator[tuple[int, Said, dict[int, int]]]:
    """Yield each message just before it is recorded in `threads`.

    A tuple has the index in the file, the message, and a mapping from the index of each earlier
    message to its number in `threads`. The mapping is live: it grows as the iteration proceeds.
    """
    numbers: dict[int, int] = {}
    for index, event in enumerate(file.lines):
        match event:
            case Said(nick, text, minute):
                yield index, event, numbers
                numbers[index] = threads.on_message(nick, text, minute)
            case Renamed(old, new):
                threads.on_rename(old, new)
            case Joined(nick):
                threads.on_join(nick)


def stripped(text: str, people: People) -> str:
    """Return a text without the nicks that it mentions, as if it were addressed to the bot."""
    nobody = -1
    return " ".join(word for word in text.split() if not people.find_addressee(nobody, word)[1])
