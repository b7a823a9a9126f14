"""The network, channel and day in the path of a log file, by the naming of the usual programs.

`irclogs/libera/#python.log` (irssi), `irc.libera.#python.weechatlog` (WeeChat),
`log/libera/#python/2024-01-02.log` (ZNC), `logs/libera/#python.log` (HexChat),
`ChannelLogger/libera/#python/#python.2024-01-02.log` (Limnoria), `#python.log.02Jan2024` (eggdrop).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from pathlib import PurePath

from harnesses.logs.formats.grammar import MONTHS

_ISO = re.compile(r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)(?!\d)")
_WORDED = re.compile(r"(?<!\d)(\d{1,2})([A-Z][a-z]{2})(\d{4})(?!\d)")
_CHANNEL = re.compile(r"[#&!+][^/,\s]+")
_ENDING = re.compile(r"(?:\.(?:weechatlog|log|txt|irclog|raw|jsonl|gz|xz|bz2))+\Z")
_MONTH_AND_DAY = re.compile(r"\.\d\d-\d\d\Z")  # in irssi's file names; the lines have the year
_WEECHAT = re.compile(r"irc\.(?P<network>.+?)\.(?P<channel>[#&!+].+)")
_FOLDERS = frozenset({"log", "logs", "irclogs", "channellogger", "xchatlogs", "scrollback"})


@dataclass(frozen=True, slots=True)
class PathInfo:
    """The network, channel and day that a path names; None for what it does not."""

    network: str | None = None
    channel: str | None = None
    day: date | None = None


def parse_path(path: PurePath) -> PathInfo:
    """Parse a path. Never raises."""
    day, stem = _without_day(path.name)
    stem = _ENDING.sub("", stem.rstrip("._- ")).strip("._- ")
    if found := _WEECHAT.fullmatch(stem):
        return PathInfo(found["network"], found["channel"], day)
    folders = [part for part in path.parts[:-1] if part.strip("/.")]
    if found := _CHANNEL.search(stem):
        channel = _MONTH_AND_DAY.sub("", found[0])
    elif folders and _CHANNEL.fullmatch(folders[-1]):
        channel = folders[-1]
    else:
        return PathInfo(day=day)
    return PathInfo(_network(folders, channel), channel, day)


def _network(folders: list[str], channel: str) -> str | None:
    """Return the folder that names the network, None if none surely does.

    It contains the file or folder of the channel, and is itself in a folder with a usual name for
    logs, or in ZNC's `networks`. Folders elsewhere may have any name.
    """
    outside = [name for name in folders if name != channel and not _is_day(name)]
    if len(outside) >= 2 and outside[-2].lower() in _FOLDERS:
        return None if outside[-1].lower() in _FOLDERS else outside[-1]
    networks = outside.index("networks") if "networks" in outside[:-1] else None  # ZNC's
    return None if networks is None else outside[networks + 1]


def _without_day(name: str) -> tuple[date | None, str]:
    for pattern, order in ((_ISO, (0, 1, 2)), (_WORDED, (2, 1, 0))):
        if found := pattern.search(name):
            year, month, day = (found.groups()[index] for index in order)
            if stated := _date(year, month, day):
                return stated, name[: found.start()] + name[found.end() :]
    return None, name


def _is_day(name: str) -> bool:
    return bool(re.fullmatch(r"\d{4}(?:-?\d\d){0,2}", name))


def _date(year: str, month: str, day: str) -> date | None:
    lower = month.lower()
    number = MONTHS.index(lower) + 1 if lower in MONTHS else 0
    try:
        return date(int(year), number or int(month), int(day))
    except ValueError:
        return None
