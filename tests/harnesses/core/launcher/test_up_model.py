"""`terrarium up` with a model of the catalogue that cannot be had: the built-in one does."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.kit.command import begun, line_with, terrarium

pytest_plugins = ("tests.kit.engine",)

NO_HUB = {"MODEL_PATH": "small", "HF_ENDPOINT": "http://127.0.0.1:9"}
FREE = {"SERVER_PORT": "0", "WEB_PORT": "0", "UP_TENDRILS": "web"}


@pytest.mark.slow
async def test_without_a_network_the_built_in_model_is_used_and_said_to_be(
    model_file: Path, tmp_path: Path
) -> None:
    env = {**NO_HUB, **FREE, "MODEL_CACHE_DIR": str(model_file.parent), "MODEL_CONTEXT": "512"}
    async with begun("up", "--data", ".", cwd=tmp_path, **env) as process:
        said = await line_with(process.stderr, "cannot be fetched now")
        assert "qwen3-0.6b" in said
        assert (await line_with(process.stdout, "ready")).startswith("ready ")
        line = await line_with(process.stdout, "no tools, no memory of its own")
        assert "model SmolLM2-135M-Instruct (135M): short answers" in line
        process.send_signal(signal.SIGTERM)
        await process.communicate()


async def test_without_any_model_the_command_ends_and_says_what_to_do(tmp_path: Path) -> None:
    env = {**NO_HUB, **FREE, "MODEL_CACHE_DIR": str(tmp_path / "none"), "PIP_NO_INDEX": "1"}
    done = await terrarium("up", "--data", ".", cwd=tmp_path, PIP_FIND_LINKS=str(tmp_path), **env)
    assert done.status == 1
    assert "Check the network" in done.err
    assert "MODEL_UPSTREAM" in done.err.splitlines()[-1]
