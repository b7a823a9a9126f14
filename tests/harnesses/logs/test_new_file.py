"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from harnesses.logs.maintenance import OperationRefused, atomic_write


def test_a_file_that_comes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "export.txt"

    def write() -> None:
        with atomic_write(path, force=False) as part:
            part.write_text("ours")
            path.write_text("theirs")

    with pytest.raises(OperationRefused, match="is there already"):
        write()
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_is_there_whole_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "export.txt"
    for text, force in (("first", False), ("second", True)):
        with atomic_write(path, force=force) as part:
            part.write_text(text)
        assert (path.read_text(), path.stat().st_mode & 0o777) == (text, 0o600)
