"""Generator of logs of any length from real lines of #ubuntu.

The lines are read from `ubuntu-irc.tar.xz` in the folder `DATA`, by default `../shared/data`, the
corpus of Kummerfeld et al., "A Large-Scale Corpus for Conversation Disentanglement", under CC BY
4.0. A longer log repeats them, each time on different channels, about 20 seconds apart: ten million
lines are six years of a busy network.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from storage.chat_log.event import Event, EventType

_ARCHIVE = Path(os.environ.get("DATA", "../shared/data")) / "ubuntu-irc.tar.xz"
_SAID = re.compile(r"\[\d\d:\d\d\] (?:<([^>]+)> ?| \* (\S+) )(.*)")
_CAME = re.compile(r"=== (\S+) \[(\S+?)@(\S+?)\]  has (joined|left) ")
_CHANNELS = ("#ubuntu", "#ubuntu", "#ubuntu", "#ubuntu", "#kubuntu", "#kubuntu", "#debian", "#bash")
BEGIN = datetime(2004, 10, 20, tzinfo=UTC)
PAUSE = timedelta(seconds=20)
_FEW = 500  # consecutive lines that stay on one channel


class NoCorpus(Exception):
    """Raised when the corpus of real lines is missing."""


@cache
def lines() -> tuple[tuple[EventType, str, str], ...]:
    """Return type, nick and text of all real lines. Raises NoCorpus."""
    if not _ARCHIVE.exists():
        raise NoCorpus(f"{_ARCHIVE} is not there; say with DATA=FOLDER where it is")
    found = []
    with tarfile.open(_ARCHIVE) as archive:
        for member in archive:
            if not member.name.endswith(".raw.txt"):
                continue
            file = archive.extractfile(member)
            assert file is not None
            found += [each for line in file if (each := _read(line.decode("utf-8", "replace")))]
    return tuple(found)


def events(number: int) -> Iterator[Event]:
    """Yield the first `number` events of the log. Raises NoCorpus."""
    time = BEGIN
    real = lines()
    for index in range(number):
        repeated, line = divmod(index, len(real))
        kind, nick, text = real[line]
        time += PAUSE * (0.1 + (index * 7919 % 100) / 55)  # uneven, 20 seconds on average
        yield Event(
            network="libera",
            channel=_CHANNELS[(line // _FEW + repeated) % len(_CHANNELS)],
            type=kind,
            time=time,
            nick=nick,
            user="u",
            host=f"{nick}.example.org",
            text=text,
        )


def _read(line: str) -> tuple[EventType, str, str] | None:
    line = line.rstrip("\r\n")
    if said := _SAID.fullmatch(line):
        speaker, actor, text = said.groups()
        return (EventType.PRIVMSG if speaker else EventType.ACTION), speaker or actor, text
    if came := _CAME.match(line):
        return (EventType.JOIN if came[4] == "joined" else EventType.PART), came[1], ""
    return None
