"""Public MCP servers and the inspector, installed from PyPI and npm.

They are installed once, apart from our packages, because they may need other versions of the same
dependencies. A test is skipped with the reason if that fails, for example without npm or network.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HOME = Path(sys.prefix) / "mcp-packages"
PYPI = ("mcp-server-time", "mcp-server-fetch", "mcp-server-git")
NPM = (
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/inspector",
)
_LONGEST = 240  # seconds of an installation


def python_server(package: str) -> str:
    """Return the executable of a server from PyPI; skip the test if it cannot be installed."""
    assert package in PYPI
    command = HOME / "python" / "bin" / package
    if not command.exists():
        venv, pip = HOME / "python", str(HOME / "python" / "bin" / "pip")
        _install(
            command,
            [sys.executable, "-m", "venv", str(venv)],
            [pip, "install", "-q", "--disable-pip-version-check", *PYPI],
        )
    return str(command)


def node_program(package: str, script: str) -> str:
    """Return the executable of a program from npm; skip the test if it cannot be installed."""
    assert package in NPM
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed (Debian: apt install npm)")
    command = HOME / "node" / "node_modules" / ".bin" / script
    if not command.exists():
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        _install(command, ["npm", "install", *quiet, "--prefix", str(HOME / "node"), *NPM])
    return str(command)


def _install(command: Path, *steps: Sequence[str]) -> None:
    """Run the steps of an installation unless `command` exists.

    A file lock keeps parallel test processes from installing at the same time.
    """
    HOME.mkdir(exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for step in () if command.exists() else steps:
            try:
                subprocess.run(step, check=True, capture_output=True, timeout=_LONGEST)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"{command.name} cannot be installed: {error}")
    if not command.exists():
        pytest.skip(f"{command.name} is not what its package installs any more")
