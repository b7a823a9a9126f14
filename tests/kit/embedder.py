"""The files of the embedding model, downloaded to the cache folder on first use.

A test module imports the fixture with `pytest_plugins = ("tests.kit.embedder",)`, and passes it to
an agent server as `cache_dir`; without it a test's server has no embedding model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_server.model_files import embedder as files
from agent_server.settings.models import ModelSettings
from terrarium.config import Config


@pytest.fixture(scope="session")
def embedder() -> Path:
    """Return the folder of model files, with the embedding model."""
    models = Config({}, None, Path("data")).section(ModelSettings).folder
    files.pull(models)
    return models
