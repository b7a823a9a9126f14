"""The small files in which processes say how they are."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from harnesses.core.tendril.status import (
    ProcessState,
    StatusFile,
    StatusReport,
    read_report,
    read_reports,
)


def test_a_process_says_what_it_does(tmp_path: Path) -> None:
    status = StatusFile(tmp_path / "data", "irc")
    steps = [
        (partial(status.report, ProcessState.STARTING), ProcessState.STARTING, ""),
        (partial(status.waiting, "for the network"), ProcessState.WAITING, "for the network"),
        (partial(status.ready, "Terra on #terrarium"), ProcessState.READY, "Terra on #terrarium"),
        (partial(status.report, ProcessState.STOPPED), ProcessState.STOPPED, ""),
    ]
    for step, state, detail in steps:
        step()
        said = read_report(tmp_path / "data", "irc")
        assert said
        assert (said.name, said.pid, said.state, said.detail) == ("irc", os.getpid(), state, detail)
        assert said.is_fresh
    assert [path.name for path in (tmp_path / "data" / "run").iterdir()] == ["irc.json"]


def test_a_report_grows_stale_and_without_a_file_there_is_none(tmp_path: Path) -> None:
    old = datetime.now(UTC) - timedelta(seconds=31)
    assert not StatusReport(
        name="irc", pid=1, state=ProcessState.READY, detail="", time=old
    ).is_fresh
    assert read_report(tmp_path, "irc") is None
    assert read_reports(tmp_path) == []
    (tmp_path / "run").write_text("in the way")
    StatusFile(tmp_path, "irc").ready()
    assert read_report(tmp_path, "irc") is None


@pytest.mark.parametrize(
    "text", ["", '{"name": "irc"', "[]", '{"name": "irc", "pid": "x"}', "\xff"]
)
def test_a_broken_file_is_no_report(tmp_path: Path, text: str) -> None:
    StatusFile(tmp_path, "web").ready()
    (tmp_path / "run" / "irc.json").write_text(text, encoding="latin-1")
    assert read_report(tmp_path, "irc") is None
    assert [said.name for said in read_reports(tmp_path)] == ["web"]


def test_one_trouble_does_not_hide_another(tmp_path: Path) -> None:
    status = StatusFile(tmp_path, "kettle")
    status.report_trouble("fill the kettle")
    for refused, trouble in (("no key", "fill the kettle; no key"), ("", "fill the kettle")):
        status.report_trouble(refused, "agent server")
        found = read_report(tmp_path, "kettle")
        assert found
        assert found.trouble == trouble
