"""The pseudonyms of people and channels: the same for a day, and of no use after it."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

from harnesses.core.tendril.preparation import Pseudonyms

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STANDBYS = 4


def test_a_pseudonym_is_the_same_after_a_restart_and_another_one_the_next_day(
    tmp_path: Path,
) -> None:
    today = [NOON]
    first = Pseudonyms(tmp_path, "irc", lambda: today[0])
    again = Pseudonyms(tmp_path, "irc", lambda: today[0])
    assert first.of("ada") == again.of("ada") != first.of("bob")
    assert Pseudonyms(tmp_path, "web", lambda: NOON).of("ada") != first.of("ada")
    before = first.of("ada")
    (key,) = (tmp_path / "run").glob("irc-*")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    today[0] += timedelta(days=1)
    assert first.of("ada") == again.of("ada") != before
    assert not key.exists()


def test_processes_that_start_at_the_same_time_have_the_same_pseudonyms(tmp_path: Path) -> None:
    with ThreadPoolExecutor(STANDBYS) as threads:
        for number in range(100):
            begin = Barrier(STANDBYS)

            def pseudonym(begin: Barrier = begin, folder: Path = tmp_path / str(number)) -> str:
                begin.wait()
                return Pseudonyms(folder, "irc", lambda: NOON).of("ada")

            found = [threads.submit(pseudonym) for _ in range(STANDBYS)]
            assert len({each.result() for each in found}) == 1


def test_a_key_that_a_crash_left_unwritten_is_written_and_one_that_cannot_be_is_not_needed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run" / f"irc-{NOON:%Y-%m-%d}.key"
    path.parent.mkdir()
    path.write_bytes(b"")
    first, again = (Pseudonyms(tmp_path, "irc", lambda: NOON) for _ in range(2))
    assert first.of("ada") == again.of("ada")
    (tmp_path / "run" / "run").write_text("a file where the folder should be")
    kept = Pseudonyms(tmp_path / "run", "irc", lambda: NOON)  # until the process ends
    assert kept.of("ada") == kept.of("ada") != kept.of("bob")
