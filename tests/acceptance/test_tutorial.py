"""docs/tendrils.md, followed word for word from an empty folder."""

from __future__ import annotations

import asyncio
import os
import re
import venv
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from harnesses.core.tendril.status import ProcessState, read_report
from tests.docs.reference import ROOT
from tests.kit.command import environment_without_settings
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.packages import lend_packages
from tests.kit.patience import PATIENCE

TEXT = (ROOT / "docs" / "tendrils.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(?P<kind>\w+)(?P<how>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)


def environment(folder: Path) -> Path:
    """An environment of its own that has all that ours has; the folder of its programs."""
    venv.create(folder, with_pip=False, symlinks=True)
    lend_packages(folder)
    programs = folder / "bin"
    modules = {"pip": "pip", "pytest": "pytest", "terrarium": "harnesses.cli"}
    for name, module in modules.items():
        script = f'#!/bin/sh\nexec "{programs}/python" -m {module} "$@"\n'
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    return programs


async def until_ready(data: Path, tendril: str) -> None:
    """Return when a tendril that was started says that it is ready."""
    async with asyncio.timeout(PATIENCE):
        while (said := read_report(data, tendril)) is None or said.state is not ProcessState.READY:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.process
async def test_each_command_of_the_tutorial_runs(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    async with ScriptedOpenAI() as script:
        script.default = Answer("In three minutes.")
        variables = environment_without_settings() | {
            "AGENT_API_URL": script.url,
            "PATH": f"{environment(tmp_path / 'environment')}:{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        background: list[asyncio.subprocess.Process] = []
        try:
            blocks = list(BLOCK.finditer(TEXT))
            assert {block["kind"] for block in blocks} == {"sh", "python", "toml"}
            for block in blocks:
                name = block["how"].strip().removeprefix("file=")
                if name and name != "background":
                    (folder / name).write_text(block["text"])
                    continue
                process = await asyncio.create_subprocess_exec(
                    *("sh", "-e", "-c", f"exec {block['text']}" if name else block["text"]),
                    cwd=folder,
                    env=variables,
                    stdout=None if name else PIPE,
                    stderr=None if name else STDOUT,
                )
                if name:
                    background.append(process)
                    await until_ready(folder / "data", block["text"].split()[-1])
                    continue
                async with asyncio.timeout(4 * PATIENCE):
                    output, _ = await process.communicate()
                assert process.returncode == 0, block["text"] + output.decode()
        finally:
            for process in background:
                process.terminate()
                await process.wait()
    assert "In three minutes." in (folder / "data/kettle/boil.answer").read_text()
    assert [path.name for path in (folder / "dist").iterdir()] == [
        "terrarium_kettle-0.1.0-py3-none-any.whl"
    ]
