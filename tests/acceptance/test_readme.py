"""The README is true: every command in it runs, in a clean copy of what git knows."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kit.command import environment_without_settings, lend_packages
from tests.kit.irc_client import irc_client
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.split("\n")
]
LASTING = "make up"
BETTER = "  better          make up MODEL=small (runs well on this machine)"
ELSEWHERE = {
    "docker compose up -d --build": "needs a Docker engine; tests/docs/test_deploy.py has the file"
}
INSTALLING = 600.0  # seconds: the patience with a command that may begin with it
LAZY = {"PIP_NO_COMPILE": "0", "PYTHONDONTWRITEBYTECODE": ""}
"""Bytecode is made of what runs, not of all that is installed (so pip spells it: its own `no`)."""

PORTS = {"SERVER_PORT": "8080", "WEB_PORT": "8081", "UP_IRC_PORT": "6667"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_every_command_of_the_readme_runs_in_a_clean_copy(tmp_path: Path) -> None:
    copied(tmp_path)
    ports = {name: str(free_port()) for name in PORTS}
    environment = environment_without_settings() | LAZY | ports | {"MODEL_THREADS": "1"}
    async with started(tmp_path, environment) as ready:
        shown = with_ports(await ready(), {ports[name]: usual for name, usual in PORTS.items()})
        shown = shown.replace(" -p 6667", "")
        [token] = re.findall(r"setup\?token=(\S+)", README)
        shown = re.sub(r"(?<=setup\?token=)\S+", token, shown)
        if "\n  better " not in shown:  # this machine is too small for a larger model
            shown = shown.replace("\n  talk", f"\n{BETTER}\n  talk")
        assert shown in README
        async with irc_client(int(ports["UP_IRC_PORT"]), "ada") as ada:
            await ada.join("#terrarium")
            await ada.say("#terrarium", "the greenhouse pump starts at six")
            await ada.say("#terrarium", ".search pump")
            await ada.expect("ada: .*the greenhouse pump starts at six")
        # `make test` brings what tests need: the others have to do with what `make up` installed.
        for command in sorted(COMMANDS, key="make test".__eq__):
            if command == "make test":
                # It has installed them from the same lock already, to run this very test.
                lend_packages(tmp_path / ".venv")
            if command and not command.startswith(LASTING) and command not in ELSEWHERE:
                here = with_ports(command, {usual: ports[name] for name, usual in PORTS.items()})
                await ran(here, tmp_path, environment)
            if "terrarium init" in command:  # `up` starts again with the file
                await ready()
    assert (tmp_path / ".env").is_file()


async def test_the_arguments_of_make_test_do_not_reach_the_make_up_that_a_test_runs() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    show = 'show: ; @echo "$$MAKEFLAGS"'
    command = ("make", "--silent", "--eval", show, "show", "ARGS=-q", "MODEL=small")
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert "eval" in out.decode()  # what it passes on
    assert "ARGS" not in out.decode()
    assert "MODEL" not in out.decode()


def test_links_in_the_documents_lead_somewhere() -> None:
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def copied(folder: Path) -> None:
    """Copy what git tracks, as it is now, into `folder`."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    for name in filter(None, tracked.stdout.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)


@asynccontextmanager
async def started(
    folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """`make up`, from nothing; yields what waits until it is ready, and returns what it says then,
    to the way to stop it."""
    process = await asyncio.create_subprocess_shell(
        f"exec {LASTING}", cwd=folder, env=dict(environment), stdout=PIPE, start_new_session=True
    )
    output = process.stdout
    assert output is not None

    async def ready() -> str:
        async with asyncio.timeout(INSTALLING):
            said = (await output.readuntil(b"Ctrl-C\n")).decode()
        return said[said.index("ready") :]

    try:
        yield ready
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches make as well
        async with asyncio.timeout(PATIENCE):
            await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)  # make alone would leave `up` behind
        await process.wait()


async def ran(command: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a command to its end; it must succeed."""
    if command == "make test":  # this very suite: a few tests show that the command works
        command = "make test ARGS='tests/harnesses/core/test_backoff.py -p no:cacheprovider'"
    said = "hello\n" if shlex.split(command)[-1] == "chat" else ""
    process = await asyncio.create_subprocess_shell(
        command, cwd=folder, env=dict(environment), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(INSTALLING):
        out, err = await process.communicate(said.encode())
    # curl ends a stream that never ends with its own status for a time-out.
    wanted = {28} if "--max-time" in command else {0}
    assert process.returncode in wanted, f"{command}\n{out.decode()}\n{err.decode()}"


def with_ports(text: str, ports: Mapping[str, str]) -> str:
    """`text` with other ports in it."""
    return re.sub("|".join(ports), lambda match: ports[match[0]], text)
