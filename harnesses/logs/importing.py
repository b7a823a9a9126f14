"""`terrarium logs import`: files into the log, beside a bot that may be writing it."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harnesses.logs.errors import UnrecognisedLog
from harnesses.logs.reading import ImportOptions, LogFile, ParsedEvent, log_file
from storage.chat_log.event import Place
from storage.chat_log.importer import FileImport, ImportedEvent
from storage.chat_log.opt_outs import OptOutRules, OptOuts
from storage.db.database import Database
from storage.settings import log_address
from terrarium.config import Config

_BATCH = 2_000  # events of a transaction: the bot waits for one at most
_EXAMPLES = 3

OnProgress = Callable[[Path, int], None]
"""Told of a file and how many of its bytes have been dealt with since the last time."""


@dataclass(slots=True)
class ImportStats:
    """Counts of an import.

    `imported` lines are new, in `places`; `present` were there already; `unwanted` are of people
    who have opted out, or marked; `unclear` were not understood, with the first as `examples`;
    `refused` are the files that were not read, with the reason, and the first of the
    `refused_lines`, with file, line number and reason.
    """

    files: int = 0
    imported: int = 0
    places: set[Place] = field(default_factory=set)
    present: int = 0
    unwanted: int = 0
    unclear: int = 0
    examples: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    refused_lines: int = 0

    def count_batch(self, batch: Sequence[ImportedEvent], new: int) -> None:
        """Count a batch, of which the log did not have `new` events."""
        self.imported += new
        self.present += len(batch) - new
        self.places.update(Place(old.event.network, old.event.channel) for old in batch)

    def count_unparsed(self, line: str, path: Path) -> None:
        """Count a line that was not understood."""
        self.unclear += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{path.name}: {line[:120]}")

    def count_refused(self, read: ParsedEvent, path: Path) -> None:
        """Count a line that is not imported."""
        self.refused_lines += 1
        if self.refused_lines <= _EXAMPLES:
            self.refused.append(f"{path}:{read.number}: {read.refused}")


async def import_logs(
    config: Config, paths: Sequence[str], options: ImportOptions, on_progress: OnProgress
) -> ImportStats:
    """Add the events of all files to the log; run again after a break it goes on where it was.

    A path is a file, a folder (with all that is below) or a pattern. Raises StorageError.
    """
    stats = ImportStats()
    async with Database.open(log_address(config)) as database:
        opt_out_rules = await OptOuts(database).load()
        for path in files(paths):
            try:
                file = log_file(path, options)
                await _import_file(FileImport(database), file, opt_out_rules, stats, on_progress)
                stats.files += 1
            except UnrecognisedLog as error:
                stats.refused.append(str(error))
    return stats


def files(paths: Iterable[str]) -> list[Path]:
    """Return the files that the paths name, each once, in order. Hidden ones are left out of
    folders."""
    found: dict[Path, None] = {}
    for path in paths:
        named = [Path(path)] if Path(path).exists() else map(Path, sorted(glob.glob(path)))
        for each in named:
            found.update(dict.fromkeys(_below(each) if each.is_dir() else [each]))
    return list(found)


async def _import_file(
    file_import: FileImport,
    file: LogFile,
    opt_out_rules: OptOutRules,
    stats: ImportStats,
    on_progress: OnProgress,
) -> None:
    batch: list[ImportedEvent] = []
    size = 0
    for read in file.lines():
        size += len(read.line) + 1
        if read.refused:
            stats.count_refused(read, file.path)
        elif read.event is None:
            stats.count_unparsed(read.line, file.path)
        elif not opt_out_rules.keeps(read.event):
            stats.unwanted += 1
        else:
            batch.append(ImportedEvent(read.event, read.exact))
        if len(batch) >= _BATCH:
            stats.count_batch(batch, await file_import.add(batch))
            on_progress(file.path, size)
            batch, size = [], 0
    stats.count_batch(batch, await file_import.add(batch))
    on_progress(file.path, size)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path
