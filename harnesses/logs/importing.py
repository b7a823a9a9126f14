"""`terrarium logs import`: adds log files to the log, which a bot may be writing meanwhile."""

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

_EVENTS_PER_BATCH = 2_000  # events of a transaction, for one of which the bot may have to wait
_MAX_EXAMPLES = 3

OnProgress = Callable[[Path, int], None]
"""Called with a file and the number of its bytes that were read since the last call, as they are on
the disk, compressed or not."""


@dataclass(slots=True)
class ImportStats:
    """The counts of an import.

    `imported` events are new; they and the `present` ones, which the log already had, are in
    `places`. `unwanted` lines are of people who have opted out, or marked. `unclear` lines could
    not be parsed; `examples` are the first of them. `refused` has the reasons why files were not
    read, and why the first of the `refused_lines` were not imported.
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
        """Count a batch, of which `new` events were added to the log."""
        self.imported += new
        self.present += len(batch) - new
        self.places.update(Place(old.event.network, old.event.channel) for old in batch)

    def count_unparsed(self, line: str, path: Path) -> None:
        """Count a line that could not be parsed."""
        self.unclear += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(f"{path.name}: {line[:120]}")

    def count_refused(self, read: ParsedEvent, path: Path) -> None:
        """Count a line whose import was refused."""
        self.refused_lines += 1
        if self.refused_lines <= _MAX_EXAMPLES:
            self.refused.append(f"{path}:{read.number}: {read.refused}")


async def import_logs(
    config: Config, paths: Sequence[str], options: ImportOptions, on_progress: OnProgress
) -> ImportStats:
    """Add the events of all files to the log. An interrupted import continues if it is run again.

    A path is a file, a folder (searched recursively) or a glob pattern. Raises StorageError.
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
    """Return the files that the paths name, each once, in order. Hidden files in folders are left
    out."""
    found: dict[Path, None] = {}
    for path in paths:
        # A name that exists is no pattern: IRC channels may have "[" and "*" in theirs.
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
    # One transaction for each batch, not for the file: the bot goes on writing in between, and an
    # interrupted import keeps what it has added.
    batch: list[ImportedEvent] = []
    done = 0
    for read in file.lines():
        if read.refused:
            stats.count_refused(read, file.path)
        elif read.event is None:
            stats.count_unparsed(read.line, file.path)
        elif not opt_out_rules.keeps(read.event):
            stats.unwanted += 1
        else:
            batch.append(ImportedEvent(read.event, read.has_seconds))
        if len(batch) >= _EVENTS_PER_BATCH:
            stats.count_batch(batch, await file_import.add(batch))
            on_progress(file.path, read.position - done)
            batch, done = [], read.position
    stats.count_batch(batch, await file_import.add(batch))
    on_progress(file.path, file.path.stat().st_size - done)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path
