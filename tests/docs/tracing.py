"""Traces of our files: those of which a function runs, in any thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.docs.reference import ROOT
from tests.docs.source import PACKAGES

_FOLDERS = tuple(f"{ROOT / package}/" for package in PACKAGES)


class FileTrace:
    """Notes our files whose functions run.

    Enter it before the threads begin that are to be traced: a profile function can be set for new
    threads only. It notes nothing outside `noting`.
    """

    def __init__(self) -> None:
        self._files: set[str] | None = None

    def __enter__(self) -> FileTrace:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self._files = None

    @contextmanager
    def noting(self) -> Iterator[set[str]]:
        """Yield the set to which files are added, by their paths in the tree."""
        noted: set[str] = set()
        self._files = noted
        try:
            yield noted
        finally:
            self._files = None

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        path, files = frame.f_code.co_filename, self._files
        if files is not None and event == "call" and path.startswith(_FOLDERS):
            files.add(Path(path).relative_to(ROOT).as_posix())
