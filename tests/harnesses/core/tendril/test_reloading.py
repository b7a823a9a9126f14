"""Files that change while a tendril runs count at once; a broken one changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from structlog.testing import capture_logs

from terrarium.config import load
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.small_tendril import SmallTendril


def write(data: Path, url: str, more: str) -> Path:
    file = data / "terrarium.toml"
    file.write_text(f'[agent]\napi_url = "{url}"\n{more}')
    return file


def small(file: Path) -> AbstractAsyncContextManager[SmallTendril]:
    return SmallTendril(load(file, file.parent)).living()


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110 - files are quiet
            await asyncio.sleep(0.01)


async def test_limits_personas_and_skills_follow_their_files(tmp_path: Path) -> None:
    personas, skills = tmp_path / "personas", tmp_path / "skills" / "frogs"
    personas.mkdir()
    skills.mkdir(parents=True)
    async with ScriptedOpenAI() as script:
        file = write(tmp_path, script.url, "max_tokens = 7\n")
        async with small(file) as tendril:
            write(tmp_path, script.url, "max_tokens = 9\n")
            await until(lambda: tendril.agent.max_tokens == 9)
            (personas / "pirate.md").write_text("Arr.")
            await until(lambda: "pirate" in tendril.prompts.personas.by_name)
            text = "---\nname: frogs\ndescription: d\ntriggers: [frog]\n---\nA frog is green."
            (skills / "SKILL.md").write_text(text)
            await until(lambda: "frogs" in tendril.prompts.registry.skills)
            await tendril.ask("A frog?", conversation="c", persona="pirate")
            (skills / "SKILL.md").unlink()
            await until(lambda: "frogs" not in tendril.prompts.registry.skills)
    [request] = script.requests
    assert request["max_tokens"] == 9
    assert request["messages"][0]["content"].startswith("Arr.\n\n")
    assert "<skills>\nA frog is green.\n</skills>" in request["messages"][-1]["content"]


async def test_what_is_wrong_changes_nothing_and_the_log_says_why(tmp_path: Path) -> None:
    own = tmp_path / "own.md"
    own.write_text("You are Terra.")
    more = f'personas = {{ small = "{own}" }}\n'
    with capture_logs() as log:
        async with small(write(tmp_path, "http://127.0.0.1:9", more)) as tendril:

            def reasons() -> list[str]:
                return [each["reason"] for each in log if each["event"] == "config.kept"]

            write(tmp_path, "http://127.0.0.1:9", f"{more}max_tokens = 9\napi_keys = 'sesame'\n")
            await until(reasons)
            assert 'unknown key "api_keys" in [agent]' in reasons()[-1]
            assert "sesame" not in reasons()[-1]
            assert tendril.agent.max_tokens is None
            write(tmp_path, "http://127.0.0.1:9", more)
            await until(lambda: [each for each in log if each["event"] == "config.changed"])
            own.write_text("---\nmodle: x\n---\nYou are somebody else.")
            await until(lambda: any("modle" in reason for reason in reasons()))
            assert tendril.prompts.personas.own.text == "You are Terra."


async def test_a_signal_reads_everything_anew(tmp_path: Path) -> None:
    with capture_logs() as log:
        async with small(write(tmp_path, "http://127.0.0.1:9", "")):
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: [each for each in log if each["event"] == "config.changed"])
