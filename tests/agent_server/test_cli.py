"""`terrarium server` and `terrarium model` as real processes."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from tests.kit.agent_server import CHAT, until_ready
from tests.kit.command import begun
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.programs import accepting
from tests.kit.serving import serving

pytest_plugins = ("tests.kit.engine",)


def begin(tmp_path: Path, *words: str, **env: str) -> AbstractAsyncContextManager[Process]:
    """Start a command; nothing is pulled, unless a test says from where."""
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1"}
    return begun(*words, "--data", str(tmp_path), cwd=tmp_path, **(cache | env))


async def run(tmp_path: Path, *words: str, **env: str) -> tuple[int, str, str]:
    """Run a command to its end; return its status and what it wrote."""
    async with begin(tmp_path, *words, **env) as process:
        return await ended(process)


async def ended(process: Process) -> tuple[int, str, str]:
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def running(tmp_path: Path, **env: str) -> AsyncIterator[tuple[Process, str]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with begin(tmp_path, "server", SERVER_PORT=str(port), **env) as process:
        await accepting(port, process)
        await until_ready(url)
        yield process, url


@pytest.mark.slow
async def test_the_server_answers_with_its_model_path(tmp_path: Path, model_file: Path) -> None:
    small = {"MODEL_CONTEXT": "512", "MODEL_SLOTS": "1", "MODEL_THREADS": "1"}
    env = {"MODEL_PATH": str(model_file), **small}
    async with running(tmp_path, **env) as (process, url):
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            messages = [{"role": "user", "content": "hi"}]
            answer = await http.post(CHAT, json={"messages": messages, "max_tokens": 3})
            assert answer.json()["choices"][0]["message"]["content"]
        process.send_signal(signal.SIGTERM)
        status, out, err = await ended(process)
    assert (status, out) == (0, "")
    assert "Traceback" not in err


async def test_sigterm_ends_the_server_while_it_streams(tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with (
        ScriptedOpenAI() as script,
        running(tmp_path, MODEL_UPSTREAM=script.url) as (process, url),
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        script.hang("a beginning")
        async with http.stream("POST", CHAT, json=body) as response:
            pieces = response.aiter_text()
            assert "chat.completion.chunk" in await anext(pieces)
            process.send_signal(signal.SIGTERM)
            rest = "".join([piece async for piece in pieces])
            status, _, err = await ended(process)
        await script.client_gone()
    assert '"the server is stopping"' in rest
    assert status == 0
    assert "Traceback" not in err


async def test_a_supervised_server_ends_with_its_supervisor(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        env = {"MODEL_UPSTREAM": script.url, "TERRARIUM_SUPERVISED": "1"}
        async with running(tmp_path, **env) as (process, _):
            assert process.stdin is not None
            process.stdin.close()
            assert (await ended(process))[0] == 0


@pytest.mark.server
async def test_a_taken_port_is_named_with_the_way_to_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        env = {"SERVER_PORT": port, "MODEL_UPSTREAM": "http://127.0.0.1:9"}
        status, out, err = await run(tmp_path, "server", **env)
    assert (status, out) == (78, "")
    (line,) = err.splitlines()
    assert port in line
    assert "SERVER_PORT" in line
    assert "[server] port" in line


async def test_what_cannot_work_is_said_in_one_line(tmp_path: Path) -> None:
    text = tmp_path / "model.gguf"
    text.write_text("not a model")
    upstream = "http://127.0.0.1:9"
    for env, wanted in (
        ({"SERVER_HOST": "0.0.0.0", "MODEL_UPSTREAM": upstream}, "SERVER_ADMIN_KEY"),
        ({"MODEL_PATH": str(tmp_path / "none.gguf")}, "none.gguf is not there"),
        ({"MODEL_PATH": str(text)}, "not a GGUF file"),
        ({"MODEL_PATH": str(text), "MODEL_UPSTREAM": upstream}, "both set"),
        ({"MODEL_UPSTREAM": "localhost:8000"}, "http://HOST:PORT"),
    ):
        env = {"SERVER_PORT": "0", **env}
        status, out, err = await run(tmp_path, "server", **env)
        assert (status, out, err.count("\n")) == (78, "", 1)
        assert wanted in err
    (tmp_path / "server.db").write_text("no database " * 100)
    env = {"SERVER_PORT": "0", "MODEL_UPSTREAM": upstream}
    status, out, err = await run(tmp_path, "server", **env)
    assert (status, out, err.count("\n")) == (78, "", 1)
    assert "server.db" in err


async def test_pull_resumes_a_download_and_list_shows_it(tmp_path: Path, model_file: Path) -> None:
    ranges: list[str | None] = []

    async def serve(request: Request) -> Response:
        ranges.append(request.headers.get("range"))
        return FileResponse(model_file)

    path = "/someone/some-model/resolve/main/sub/tiny.gguf"
    folder = tmp_path / "cache" / "terrarium" / "models"
    folder.mkdir(parents=True)
    content = await asyncio.to_thread(model_file.read_bytes)
    (folder / "tiny.gguf.part").write_bytes(content[:50_000_000])
    wanted = hashlib.sha256(content).hexdigest()
    async with serving(Starlette(routes=[Route(path, serve)])) as url:
        words = ("pull", "hf:someone/some-model/sub/tiny.gguf", "--sha256", wanted.upper())
        status, out, err = await run(tmp_path, "model", *words, HF_ENDPOINT=url)
    assert (status, out) == (0, f"{folder / 'tiny.gguf'}\n")
    assert ranges == ["bytes=50000000-"]
    assert (folder / "tiny.gguf").read_bytes() == content
    assert "up --model " in err
    assert [each.name for each in folder.iterdir()] == ["tiny.gguf"]
    status, out, _ = await run(tmp_path, "model", "list")
    assert status == 0
    assert f"here, in {folder}:\n  tiny  98 MB\n" in out
    assert "qwen3-0.6b (small)" in out


async def test_a_pulled_file_that_is_not_the_wanted_one_is_removed(tmp_path: Path) -> None:
    async def serve(request: Request) -> Response:
        return Response(b"GGUF but another" if "other" in request.url.path else b"<html>")

    folder = tmp_path / "cache" / "terrarium" / "models"
    async with serving(Starlette(routes=[Route("/{name}", serve)])) as url:
        for words, wanted in (
            ((f"{url}/other.gguf", "--sha256", "00"), "sha256"),
            ((f"{url}/page.gguf",), "not a GGUF file"),
            ((f"{url}/page.html",), ".gguf"),
            (("someone/some-model",), "hf:OWNER/REPO/FILE.gguf"),
        ):
            status, out, err = await run(tmp_path, "model", "pull", *words)
            assert (status, out) == (1, "")
            assert wanted in err
            assert "Traceback" not in err
            assert not list(folder.glob("*"))
