"""What the command line says about itself: commands as they can be typed, and a foreign package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def told(folder: Path, script: str, **environment: str) -> str:
    """The advice of a check that fails, by a command typed in `folder`."""
    done = subprocess.run(
        [script, "doctor", "irc"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr + done.stdout


@pytest.mark.process
def test_a_command_in_a_message_can_be_typed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(BIN.parent)
    assert "`.venv/bin/terrarium up`" in told(tmp_path, ".venv/bin/terrarium")
    path = f"{BIN}:{os.environ['PATH']}"
    assert "`terrarium up`" in told(tmp_path, str(BIN / "terrarium"), PATH=path)
    elsewhere = told(tmp_path, str(BIN / "terrarium"), PATH="/usr/bin:/bin")
    assert f"`{BIN}/terrarium up`" in elsewhere


@pytest.mark.process
def test_a_foreign_package_llm_is_named_with_the_way_out(tmp_path: Path) -> None:
    about = tmp_path / "llm-0.31.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: llm\nVersion: 0.31\n")
    said = told(tmp_path, str(BIN / "terrarium"), PYTHONPATH=str(tmp_path))
    assert "the package llm 0.31 is installed in this environment too" in said
    assert "uv tool install terrarium-irc" in said
