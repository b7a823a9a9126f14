"""What Terrarium keeps can be read by its user only."""

from __future__ import annotations

import stat
from pathlib import Path

from storage.db.private_files import make_file, mode_if_exposed, tighten_data


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_that_is_made_is_for_its_user_only_and_one_that_is_there_becomes_so(
    tmp_path: Path,
) -> None:
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    old.write_text("kept")
    old.chmod(0o664)
    make_file(new)
    make_file(old)
    assert (mode(new), mode(old), old.read_text()) == (0o600, 0o600, "kept")
    assert mode_if_exposed(new) is None


def test_what_an_earlier_version_made_is_tightened_and_nothing_else(tmp_path: Path) -> None:
    ours = ["irc.db", "irc.db-wal", "irc.db.before-9", "run/irc.json"]
    others = ["notes.txt", "personas/pirate.md"]
    for name in (*ours, *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(0o644)
        (tmp_path / name).chmod(0o644)
    (tmp_path / "run").chmod(0o755)
    tighten_data(tmp_path)
    assert {mode(tmp_path / name) for name in ours} == {0o600}
    assert mode(tmp_path / "run") == 0o700
    assert {mode(tmp_path / name) for name in others} == {0o644}
