"""The tendril as a process part: ports, stopping, a real command line away from the pages."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import httpx2
import pytest

from harnesses.core.errors import PortTaken, TendrilError
from harnesses.core.tendril.status import ProcessState, read_report
from harnesses.web.tendril import WebTendril
from terrarium.config import Config
from tests.kit.command import begun, until_ready
from tests.kit.patience import PATIENCE


@pytest.mark.server
async def test_an_address_that_is_taken_or_not_ours_is_named_with_how_to_change_it(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        table = {"port": 0, "host": "192.0.2.1", "token": "frogs-are-awake"}
        for settings, error, words in (
            ({"port": port}, PortTaken, rf"port {port} .* WEB_PORT=PORT or `\[web\] port`"),
            (table, TendrilError, r"cannot listen on 192\.0\.2\.1 .* WEB_PORT"),
        ):
            with pytest.raises(error, match=words):
                await WebTendril(Config({"web": settings}, None, tmp_path)).run()


async def test_sigterm_stops_it_while_streams_are_open(tmp_path: Path) -> None:
    async with begun("run", "web", "--data", ".", cwd=tmp_path, WEB_PORT="0") as child:
        await until_ready(tmp_path, "web")
        report = read_report(tmp_path, "web")
        assert report
        async with (
            httpx2.AsyncClient(base_url=report.detail, timeout=PATIENCE) as http,
            http.stream("GET", "/api/stream") as stream,
        ):
            lines = stream.aiter_lines()
            await anext(lines)
            child.send_signal(signal.SIGTERM)
            async for _line in lines:
                pass
            assert await child.wait() == 0
    ended = read_report(tmp_path, "web")
    assert ended
    assert ended.state is ProcessState.STOPPED
