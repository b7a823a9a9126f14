"""Nothing reaches an endpoint of the agent server past its keys: SECURITY.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.types import Message
from starlette.websockets import WebSocket

from agent_server.app import create_app
from terrarium.config import Config

TABLES: dict[str, Any] = {
    "server": {"admin_key": "a key of the admin"},
    "model": {"upstream": "http://127.0.0.1:9"},
}


async def test_no_websocket_gets_past_the_keys_of_the_agent_server(tmp_path: Path) -> None:
    app, sent = create_app(Config(TABLES, None, tmp_path)), list[Message]()

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
