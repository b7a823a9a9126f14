"""`/mcp` as HTTP: what is no message of the protocol gets an error that says so, and early."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from harnesses.web.mcp.endpoint import McpEndpoint
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving
from tests.kit.web_site import WebSite, bearer, event, web_site

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = {"mcp-protocol-version": "2026-07-28"}


def message(method: str = "tools/list", **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, **members}


NO_MESSAGES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'"frogs"',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}',
    json.dumps([message()] * 1000).encode(),
)


async def test_what_is_no_message_is_a_bad_request(site: WebSite) -> None:
    for headers, body in product((ACCEPT, ACCEPT | MODERN), NO_MESSAGES):
        answer = await site.http.post("/mcp", content=body, headers=headers)
        assert answer.status_code == 400, body[:60]
        assert answer.json()["error"]["code"] in (-32700, -32600, -32602)


async def test_wrong_methods_and_parameters_and_huge_requests_are_refused(site: WebSite) -> None:
    for sent, code in (
        (message("tools/burn"), -32601),
        (message("tools/call"), -32602),
        (message("tools/call", params={"name": 7}), -32602),
        (message("tools/call", params={"name": "search_log", "arguments": []}), -32602),
        (message("resources/read", params={"uri": "file:///etc/passwd"}), -32602),
    ):
        answer = await site.http.post("/mcp", json=sent, headers=ACCEPT)
        assert f'"code":{code}' in answer.text, (sent, answer.text)
    for method in ("GET", "DELETE", "PUT"):
        answer = await site.http.request(method, "/mcp", headers=ACCEPT)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    big = message("tools/call", params={"name": "x" * 2**20})
    for session in ({}, {"mcp-session-id": "mine"}):
        answer = await site.http.post("/mcp", json=big, headers=ACCEPT | session)
        assert answer.status_code == 413


async def test_a_client_that_leaves_in_mid_request_harms_nobody(site: WebSite) -> None:
    address = urlsplit(site.url)
    assert address.hostname is not None
    head = f"POST /mcp HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 100\r\n"
    slow = [await asyncio.open_connection(address.hostname, address.port) for _ in range(20)]
    for _, writer in slow:
        writer.write(f"{head}Accept: */*\r\nContent-Type: application/json\r\n\r\n{{".encode())
    answer = await site.http.post("/mcp", json=message(), headers=ACCEPT)
    assert answer.status_code == 200
    for _, writer in slow:
        writer.close()
    assert (await site.http.post("/mcp", json=message(), headers=ACCEPT)).status_code == 200


async def test_a_page_elsewhere_cannot_have_a_browser_call_a_tool(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=[event("for us alone")]) as site:
        call = message("tools/call", params={"name": "read_log"})
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"host": "rebound.example"},
            {"sec-fetch-site": "cross-site"},
        ):
            answer = await site.http.post("/mcp", json=call, headers={**ACCEPT, **headers})
            assert answer.status_code == 403
            assert "for us alone" not in answer.text


async def test_a_wrong_token_opens_nothing(tmp_path: Path) -> None:
    async with web_site(tmp_path, settings={"token": "whole-token"}) as site:
        for token in ("", "wrong"):
            headers = ACCEPT | bearer(token)
            answer = await site.http.post("/mcp", json=message(), headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_without_the_extra_it_says_how_to_get_it() -> None:
    async with serving(McpEndpoint()) as url, httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.post(url, json=message())
        assert answer.status_code == 501
        assert "pip install 'terrarium-irc[mcp]'" in answer.json()["error"]["message"]
