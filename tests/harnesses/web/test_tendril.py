"""The tendril as a process part: ports, stopping, a real command line away from the pages."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import httpx2
import pytest

from harnesses.core.errors import PortTaken, TendrilError
from harnesses.core.tendril.status import ProcessState, read_report
from harnesses.web.tendril import WebTendril
from terrarium.config import Config
from tests.kit.patience import PATIENCE

_RUN = """
import asyncio, sys
from pathlib import Path
from harnesses.web.tendril import WebTendril
from terrarium.config import Config
asyncio.run(WebTendril(Config({"web": {"port": 0}}, None, Path(sys.argv[1]))).run())
"""


@pytest.mark.server
async def test_a_taken_port_is_named_with_how_to_change_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        tendril = WebTendril(Config({"web": {"port": port}}, None, tmp_path))
        with pytest.raises(PortTaken, match=rf"port {port} .* WEB_PORT=PORT or `\[web\] port`"):
            await tendril.run()


@pytest.mark.server
async def test_an_address_that_is_not_ours_is_named(tmp_path: Path) -> None:
    table = {"port": 0, "host": "192.0.2.1", "token": "frogs-are-awake"}
    tendril = WebTendril(Config({"web": table}, None, tmp_path))
    with pytest.raises(TendrilError, match=r"cannot listen on 192\.0\.2\.1 .* WEB_PORT"):
        await tendril.run()


async def test_sigterm_stops_it_while_streams_are_open(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _RUN, str(tmp_path)),
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TERRARIUM_SUPERVISED": "0"},
    )
    try:
        url = await _address(tmp_path)
        async with (
            httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http,
            http.stream("GET", "/api/stream") as stream,
        ):
            lines = stream.aiter_lines()
            await anext(lines)
            child.send_signal(signal.SIGTERM)
            async for _line in lines:
                pass
            assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    said = read_report(tmp_path, "web")
    assert said is not None
    assert said.state is ProcessState.STOPPED


async def _address(data: Path) -> str:
    async with asyncio.timeout(PATIENCE):
        while True:
            said = read_report(data, "web")
            if said and said.state is ProcessState.READY:
                return said.detail
            await asyncio.sleep(0.02)
