"""The up file counts only while the `terrarium up` that wrote it runs."""

from __future__ import annotations

import os
from pathlib import Path

from harnesses.core.addresses import RunningUp, published_up_file, read_up_file
from storage.db.process_lock import hold_lock


def test_an_up_file_left_behind_does_not_count_though_its_process_id_is_in_use_again(
    tmp_path: Path,
) -> None:
    running = RunningUp(
        pid=os.getpid(), server="http://127.0.0.1:1", web=None, irc_port=None, key="k"
    )
    with published_up_file(tmp_path, running):
        assert read_up_file(tmp_path) is None
        with hold_lock(tmp_path, "up", "terrarium up"):
            assert read_up_file(tmp_path) == running
        assert read_up_file(tmp_path) is None
