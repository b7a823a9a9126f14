"""Keys and tokens cannot be guessed, go to nobody else, and guard everything: SECURITY.md."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message
from starlette.websockets import WebSocket

from agent_server.app import create_app
from agent_server.settings.server import ServerSettings
from harnesses.web.settings import WebSettings
from terrarium.config import Config, ConfigError
from tests.kit.command import begun, terrarium
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving

SHORT, LONG = "seven77", "eight888"


def config(table: str, **values: Any) -> Config:
    return Config({table: values}, None, Path("data"))


@pytest.mark.parametrize(
    "secrets", [{"admin_key": SHORT}, {"keys": {"irc": SHORT}}, {"keys": {"irc": LONG, "web": "a"}}]
)
def test_no_key_that_can_be_guessed_opens_a_reachable_server(secrets: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="fewer than 8 characters") as refused:
        config("server", host="0.0.0.0", **secrets).section(ServerSettings).require_key()
    assert SHORT not in str(refused.value)
    config("server", **secrets).section(ServerSettings).require_key()  # on loopback it may be
    config("server", host="0.0.0.0", keys={"irc": LONG}).section(ServerSettings).require_key()


@pytest.mark.parametrize("reached", [{"host": "0.0.0.0"}, {"public_url": "https://logs.example"}])
def test_no_token_that_can_be_guessed_opens_reachable_pages(reached: dict[str, Any]) -> None:
    guests = {"token": SHORT, "channels": ["irc/#open"]}
    for secrets in ({"token": SHORT}, {"token": LONG, "tokens": {"guests": guests}}):
        with pytest.raises(ConfigError, match="fewer than 8 characters") as refused:
            config("web", **reached, **secrets).section(WebSettings)
        assert SHORT not in str(refused.value)
        config("web", **secrets).section(WebSettings)  # on loopback it may be
    config("web", **reached, token=LONG).section(WebSettings)


async def test_doctor_names_the_keys_and_tokens_that_are_short(tmp_path: Path) -> None:
    file = tmp_path / "terrarium.toml"
    file.write_text(
        '[server]\nadmin_key = "hunter2"\n[server.keys]\nirc = "hunter3"\n'
        '[web]\ntoken = "hunter4"\n'
        '[web.tokens.guests]\ntoken = "hunter5"\nchannels = ["irc/#open"]\n'
        '[web.accounts.ada]\ntoken = "hunter6"\n'
    )
    told = (await terrarium("doctor", cwd=tmp_path)).out
    assert "hunter" not in told
    (line,) = [line for line in told.splitlines() if line.split()[1] == "secrets"]
    assert line.startswith("problem")
    for table in ("server] admin_key", "server.keys] irc", "web] token", "web.tokens.guests]"):
        assert f"[{table}" in line
    assert "[web.accounts.ada] token" in line
    file.write_text('[web]\ntoken = "sixteen-or-more-of-them"\n')
    told = (await terrarium("doctor", cwd=tmp_path)).out
    (line,) = [line for line in told.splitlines() if line.split()[1] == "secrets"]
    assert line.startswith("ok")


@pytest.mark.parametrize(("keys", "sent"), [("{}", None), ('{"web": "key of the web"}', "web")])
async def test_a_tendril_that_runs_without_up_never_sends_the_key_of_the_admin(
    tmp_path: Path, keys: str, sent: str | None
) -> None:
    asked: asyncio.Queue[str | None] = asyncio.Queue()

    async def refuse(request: Request) -> JSONResponse:
        asked.put_nowait(request.headers.get("authorization"))
        return JSONResponse({"error": {"message": "who are you?"}}, 401)

    async with serving(Starlette(routes=[Route("/{path:path}", refuse)])) as url:
        settings = {
            "SERVER_PORT": url.rpartition(":")[2],
            "SERVER_ADMIN_KEY": "a-secret-of-the-owner",
            "SERVER_KEYS": keys,
            "WEB_PORT": "0",
        }
        async with begun("run", "web", cwd=tmp_path, **settings):
            async with asyncio.timeout(PATIENCE):
                assert await asked.get() == (sent and f"Bearer key of the {sent}")


async def test_no_websocket_gets_past_the_keys_of_the_agent_server(tmp_path: Path) -> None:
    server, model = {"admin_key": "a key of the admin"}, {"upstream": "http://127.0.0.1:9"}
    app = create_app(Config({"server": server, "model": model}, None, tmp_path))
    sent: list[Message] = []

    async def accept(socket: WebSocket) -> None:
        await socket.accept()

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    app.add_api_websocket_route("/echo", accept)
    headers = [(b"authorization", b"Bearer a key of the admin")]
    scope = {"type": "websocket", "path": "/echo", "headers": headers, "query_string": b""}
    await app(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]
