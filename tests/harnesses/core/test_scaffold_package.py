"""What `terrarium new` writes, installed by pip and tested by its own test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harnesses.core.scaffold import scaffold

FIND = """
from importlib.metadata import entry_points
for group in ("terrarium.tendrils", "terrarium.settings"):
    (entry,) = entry_points(group=group, name="letters")
    print(entry.load().__name__)
"""


def run(*command: str, cwd: Path, path: Path) -> str:
    """The output of a command that sees the packages installed in `path`."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_tendril_is_found_once_installed_and_its_test_passes(tmp_path: Path) -> None:
    folder = scaffold("letters", tmp_path)
    site = tmp_path / "site"
    run(
        "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), ".", cwd=folder, path=site
    )
    assert run("-c", FIND, cwd=tmp_path, path=site).split() == ["LettersTendril", "FolderSettings"]
    assert (site / "letters" / "persona.md").is_file()
    output = run("-m", "pytest", "-q", "tests", cwd=folder, path=site)
    assert "2 passed" in output
