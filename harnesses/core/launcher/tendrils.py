"""The installed tendrils (entry points `terrarium.tendrils`): their classes, their processes, and
the data folder that they share."""

from __future__ import annotations

import asyncio
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from harnesses.core.errors import TendrilError, UnknownTendril
from harnesses.core.tendril.status import ProcessState, read_reports
from storage.db.errors import ServerAway, StorageError
from storage.db.private_files import make_file
from storage.db.process_lock import AlreadyRunning, hold_lock
from storage.queues.leases import LeaseLost
from terrarium.config import ConfigError
from terrarium.entry_points import entry_points
from terrarium.supervision import is_stopped_within, root_cause

if TYPE_CHECKING:  # `terrarium up` only starts tendrils as processes: keep its imports light
    from harnesses.core.tendril.base import Tendril

GROUP = "terrarium.tendrils"

_MAX_MESSAGE_CHARS = 200  # characters of an error's message
_DATABASE_PAUSE = 1.0  # seconds between two attempts to start while PostgreSQL is away
_PYTHON = sysconfig.get_path("stdlib")
_FOUNDATIONS = tuple(
    f"{Path(__file__).parents[3] / each}{os.sep}"
    for each in ("harnesses/core", "llm", "storage", "terrarium")
)

_OTHERS = ("up", "server", "logs-import")
"""The locks of commands that write stores and are no tendrils."""

_log = structlog.get_logger()


def names() -> list[str]:
    """Return the names of all installed tendrils, sorted."""
    return sorted({entry.name for entry in entry_points(GROUP)})


def tendril_class(name: str) -> type[Tendril]:
    """Return the class of a tendril. No other tendril is imported, as its package may be broken.
    Raises UnknownTendril, and TendrilError if the package cannot be imported."""
    found = entry_points(GROUP).select(name=name)
    if not found:
        raise UnknownTendril(name, names())
    entry = next(iter(found))
    try:
        kind: type[Tendril] = entry.load()
    except (ImportError, AttributeError) as error:
        raise TendrilError(
            f'the tendril "{name}" cannot be loaded from {entry.value}: {error}'
        ) from error
    return kind


class TendrilCrashed(TendrilError):
    """A tendril ended with an unexpected error."""


def run_until_stopped(
    process: Tendril, again: Callable[[], Tendril], say: Callable[[str], None]
) -> None:
    """Run a tendril until it is told to stop. Raises ConfigError, TendrilError and StorageError,
    and for any other error TendrilCrashed.

    After LeaseLost another process has taken over; the tendril that `again` creates then runs as
    its standby. While PostgreSQL is away, one is created every second until it can start.
    """
    said = ""
    while True:
        try:
            return asyncio.run(process.run())
        except LeaseLost as lost:
            say(f"terrarium: {lost}; standing by")
            process = again()
        except ServerAway as away:
            process.status.waiting(str(away))
            if str(away) != said:
                said = str(away)
                say(f"terrarium: {said}; waiting for it")
            if is_stopped_within(_DATABASE_PAUSE):
                return process.status.report(ProcessState.STOPPED)
            process = again()
        except (ConfigError, TendrilError, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 -- a tendril is anybody's code
            raise report_crash(process.name, process.config.data, error) from None


def report_crash(name: str, data: Path, error: Exception) -> TendrilCrashed:
    """Return an error that describes a crash in one line. Its traceback goes to the log at debug
    level and, if the disk allows, to `DATA/run/NAME.crash`, which only the owner may read."""
    cause = root_cause(error)
    _log.debug("tendril.crashed", tendril=name, exc_info=error)
    # Named is the innermost frame in the tendril's own code, or else the innermost of all:
    # exceptions often surface in shared code, but their cause is usually in the tendril's.
    frames = traceback.extract_tb(cause.__traceback__)
    theirs = [
        each
        for each in frames
        if not each.filename.startswith(_FOUNDATIONS)
        and ("site-packages" in each.filename or not each.filename.startswith(_PYTHON))
    ]
    where = "".join(
        f" ({Path(each.filename).name}, line {each.lineno})" for each in (theirs or frames)[-1:]
    )
    words = " ".join(str(cause).split())[:_MAX_MESSAGE_CHARS]
    text = f'the tendril "{name}" has crashed: {type(cause).__name__}: {words}{where}'
    path = data / "run" / f"{name}.crash"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make_file(path)  # for the owner only: a traceback can quote messages and keys
        whole = "".join(traceback.format_exception(cause))
        path.write_text(whole, encoding="utf-8", errors="backslashreplace")
    except OSError:  # a full disk must not hide the crash itself
        return TendrilCrashed(text)
    return TendrilCrashed(f"{text}; all of it is in {path}")


@contextmanager
def hold_stopped(data: Path, command: str) -> Iterator[None]:
    """Keep `terrarium up`, the agent server, imports and all tendrils from starting on a data
    folder, during a `command` that replaces or moves its stores.

    Raises TendrilError if one of them runs, and Unavailable if the folder cannot be written.
    """
    known = dict.fromkeys((*_OTHERS, *names(), *(each.name for each in read_reports(data))))
    with ExitStack() as locks:
        try:
            # The locks come before the check, so that nothing can start between the two.
            for name in known:
                locks.enter_context(hold_lock(data, name, command))
            # A process on another machine that shares the folder may hold no lock we can see.
            for each in read_reports(data):
                if each.state is not ProcessState.STOPPED and each.is_fresh:
                    raise AlreadyRunning(f"terrarium run {each.name}", data, str(each.pid))
        except AlreadyRunning as error:
            raise TendrilError(
                f"`{error.command}` (process {error.pid}) runs on {data}; stop everything, and run"
                " the same command again"
            ) from error
        yield
