"""`terrarium up` with a model of the catalogue that is not here yet: the built-in one stands in."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.kit.command import begun, line_with, terrarium

pytest_plugins = ("tests.kit.engine",)

NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9"}
FREE = {"SERVER_PORT": "0", "WEB_PORT": "0", "UP_TENDRILS": "web"}


@pytest.mark.slow
async def test_the_built_in_model_stands_in_and_a_file_that_comes_takes_over(
    model_file: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for each in model_file.parent.iterdir():
        if not each.name.startswith("Qwen"):
            (models / each.name).symlink_to(each)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        env = {**NO_HUB, **FREE, "MODEL_CACHE_DIR": str(models), "MODEL_CONTEXT": "512"}
        env |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        command = ("up", "--model", "small", "--data", ".")
        async with begun(*command, cwd=tmp_path, **env) as process:
            assert (await line_with(process.stdout, "ready", 240)).startswith("ready ")
            line = await line_with(process.stdout, "too small for tools")
            assert "SmolLM2-135M-Instruct (135M): quotes and short answers" in line
            said = await line_with(process.stderr, "cannot be fetched now")
            assert "qwen3-0.6b" in said
            # Somebody fetches it later; here its name is enough.
            os.link(model_file, models / "Qwen3-0.6B-Q8_0.gguf")
            await line_with(process.stderr, "routing.changed")
            told = systemd.recv(4096) + systemd.recv(4096) + systemd.recv(4096)
            assert b"READY=1" in told
            assert b"WATCHDOG=1" in told
            process.send_signal(signal.SIGTERM)
            await process.communicate()


async def test_without_any_model_the_command_ends_and_says_what_to_do(tmp_path: Path) -> None:
    env = {**NO_HUB, **FREE, "MODEL_CACHE_DIR": str(tmp_path / "none"), "PIP_NO_INDEX": "1"}
    env |= {"PIP_FIND_LINKS": str(tmp_path), "MODEL_PATH": "small"}
    done = await terrarium("up", "--data", ".", cwd=tmp_path, **env)
    assert done.status == 1
    assert "no package index is configured" in done.err
    assert "MODEL_UPSTREAM" in done.err.splitlines()[-1]
