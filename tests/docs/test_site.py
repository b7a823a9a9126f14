"""The documentation builds as a site without a warning: each link and anchor leads somewhere.

What is not in the navigation, or named twice there, is a warning, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.reference import ROOT


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    folders = ["-c", "docs", "-d", f"{tmp_path}/doctrees", "-b", "html", ".", f"{tmp_path}/site"]
    done = subprocess.run([*command, *folders], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "site" / "docs" / "index.html").read_text("utf-8")
    assert "Libera.Chat" in page
    assert (tmp_path / "site" / "index.html").is_file()
