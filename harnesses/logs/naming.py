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

from harnesses.logs.grammar import date_of

_ISO = re.compile(r"(?<!\d)(?P<year>\d{4})-?(?P<month>\d\d)-?(?P<day>\d\d)(?!\d)")
_WORDED = re.compile(r"(?<!\d)(?P<day>\d{1,2})(?P<month>[A-Z][a-z]{2})(?P<year>\d{4})(?!\d)")
_DAY = re.compile(r"\d{4}(?:-?\d\d){0,2}")
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
    day, stem = None, path.name
    for pattern in (_ISO, _WORDED):
        found = pattern.search(stem)
        if found and (day := date_of(found["year"], found["month"], found["day"])):
            stem = stem[: found.start()] + stem[found.end() :]
            break
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
    # The network's folder contains the file or folder of the channel, and is itself in a folder
    # with a usual name for logs, or in ZNC's `networks`. Folders elsewhere may have any name.
    outside = [name for name in folders if name != channel and not _DAY.fullmatch(name)]
    network = None
    if len(outside) >= 2 and outside[-2].lower() in _FOLDERS:
        network = None if outside[-1].lower() in _FOLDERS else outside[-1]
    elif "networks" in outside[:-1]:
        network = outside[outside.index("networks") + 1]
    return PathInfo(network, channel, day)
