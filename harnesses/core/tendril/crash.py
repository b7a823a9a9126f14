"""Crash reports of tendrils: one line for the terminal, and a file with the traceback."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

import structlog

from harnesses.core.errors import TendrilError
from terrarium.supervision import root_cause

_MAX_MESSAGE_CHARS = 200  # characters of an error's message

_PYTHON = sysconfig.get_path("stdlib")
_ROOT = Path(__file__).parents[3]
# Shared code: exceptions often surface there, but their cause is usually in the tendril's code.
_FOUNDATIONS = tuple(
    f"{_ROOT / each}{os.sep}" for each in ("harnesses/core", "llm", "storage", "terrarium")
)

_log = structlog.get_logger()


class TendrilCrashed(TendrilError):
    """A tendril ended with an unexpected error."""


def report_crash(name: str, data: Path, error: Exception) -> TendrilCrashed:
    """Return an error that describes a crash in one line. Its traceback goes to the log at debug
    level and, if the disk allows, to `DATA/run/NAME.crash`, which only the owner may read."""
    cause = root_cause(error)
    _log.debug("tendril.crashed", tendril=name, exc_info=error)
    where = _place(traceback.extract_tb(cause.__traceback__))
    words = " ".join(str(cause).split())[:_MAX_MESSAGE_CHARS]
    text = f'the tendril "{name}" has crashed: {type(cause).__name__}: {words}{where}'
    path = data / "run" / f"{name}.crash"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A traceback can quote messages and keys, hence a file for the owner only.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines(traceback.format_exception(cause))
    except OSError:  # a full disk must not hide the crash itself
        return TendrilCrashed(text)
    return TendrilCrashed(f"{text}; all of it is in {path}")


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return the location of the error: the innermost frame in the tendril's own code, or else the
    innermost of all."""
    theirs = [frame for frame in frames if not _is_foundation(frame.filename)]
    last = (theirs or frames)[-1:]
    return "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in last)


def _is_foundation(file: str) -> bool:
    is_python = file.startswith(_PYTHON) and "site-packages" not in file
    return is_python or file.startswith(_FOUNDATIONS)
