"""The real embedded engine, started once for all tests of a session.

A test module imports the fixtures with `pytest_plugins = ("tests.kit.engine",)`. The model is
downloaded to the cache folder on first use.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_server.engines.llama_child import EngineSpec
from agent_server.model_files import store as model_store
from agent_server.settings.models import ModelSettings
from terrarium.config import Config
from tests.kit.agent_server import CONTEXT, SLOTS, EngineAddress


@pytest.fixture(scope="session")
def model_file() -> Path:
    """Return the path of the default model's GGUF file; download it if necessary."""
    settings = Config({}, None, Path("data")).section(ModelSettings)
    model_store.ensure(settings)
    return model_store.model_file(settings)


@pytest.fixture(scope="session")
def engine(model_file: Path) -> Iterator[EngineAddress]:
    """Run an engine with two slots of 1024 tokens.

    It has one thread: several would busy-wait for each other, which takes seconds per token while
    parallel tests use the processors.
    """
    spec = EngineSpec(str(model_file), "terra", CONTEXT, SLOTS, 1, secrets.token_urlsafe())
    command = [sys.executable, "-m", "agent_server.engines.llama_child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(spec.as_line())
        process.stdin.flush()
        line = next(line for line in process.stdout if line.startswith(b"{"))
        yield EngineAddress(json.loads(line)["url"], spec.key, process)
        process.stdin.close()
