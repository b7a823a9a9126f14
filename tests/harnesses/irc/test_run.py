"""`terrarium run irc` as a network sees it that asks for something: CAP, SASL, TLS and STS.

The agent server cannot be reached in any of these tests; that must not keep the tendril away.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kit.certificates import certificate
from tests.kit.command import begun
from tests.kit.irc_script import listening
from tests.kit.patience import PATIENCE

LOGGED_IN = ("900 * * jilles :You are now logged in.", "903 * :SASL authentication successful")


@asynccontextmanager
async def run(folder: Path, port: int, *lines: str, **environment: str) -> AsyncIterator[Process]:
    """The command, configured for one network on loopback; `lines` add to its table."""
    config, data = folder / "config.toml", folder / "data"
    network = ("[irc]", 'server = "127.0.0.1"', f"port = {port}", 'channels = ["#c"]', *lines)
    config.write_text("\n".join(("[agent]", 'api_url = "http://127.0.0.1:9"', *network)))
    arguments = ("run", "irc", "--config", str(config), "--data", str(data))
    async with begun(*arguments, cwd=folder, **environment) as process:
        yield process


async def stopped(process: Process) -> int:
    """Its status after SIGTERM."""
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


async def test_a_server_that_offers_nothing_lets_us_in(tmp_path: Path) -> None:
    async with listening() as server, run(tmp_path, server.port) as process:
        wire = await server.accept()
        assert await wire.line() == "CAP LS 302"
        await wire.say("CAP * LS :")
        assert await wire.answer() == "CAP END"
        await wire.say(":s 433 * Terra :Nickname is already in use", "PING :x")
        assert {await wire.line(), await wire.line()} == {"NICK Terra_", "PONG x"}
        assert await stopped(process) == 0


async def test_plain_logs_in_with_a_long_password(tmp_path: Path) -> None:
    password = "éèà" * 100
    lines = ('sasl = ["PLAIN"]', 'sasl_username = "jilles"', f'sasl_password = "{password}"')
    async with listening() as server, run(tmp_path, server.port, *lines):
        wire = await server.accept()
        assert await wire.offer("sasl") == ["sasl"]
        assert await wire.answer() == "AUTHENTICATE PLAIN"
        await wire.say("AUTHENTICATE +")
        assert await wire.authenticated() == f"jilles\0jilles\0{password}".encode()
        await wire.say(*LOGGED_IN)
        assert await wire.answer() == "CAP END"


@pytest.mark.slow
async def test_tls_is_insisted_on_for_as_long_as_the_server_has_said(tmp_path: Path) -> None:
    good = certificate(tmp_path, "good")
    settings = (f'tls_fingerprints = ["{good.fingerprint}"]', 'password = "secret"')
    async with listening() as plain, listening(good.server()) as secure:
        async with run(tmp_path, plain.port, *settings) as process:
            wire = await plain.accept()
            assert await wire.line() == "CAP LS 302"
            await wire.say(f"CAP * LS :sasl sts=port={secure.port}", ":s 001 Terra :Welcome")
            assert await wire.at_end() == b"", "nothing more is said in the clear"
            wire = await secure.accept()
            assert await wire.line() == "CAP LS 302"
            await wire.until("PASS secret")
            await wire.say("CAP * LS :sts=duration=1000,port=12345")  # the port is not for us
            await wire.until("CAP END")
            await wire.say("ERROR :closing link")
            assert await (await secure.accept()).line() == "CAP LS 302"
            assert await stopped(process) == 0
        async with run(tmp_path, plain.port, *settings) as process:
            wire = await secure.accept()
            await wire.until("USER")
            await wire.say("CAP * LS :sts=duration=0")
            await wire.until("CAP END")
            assert await stopped(process) == 0
        assert plain.wires.empty()
        async with run(tmp_path, plain.port):
            assert await (await plain.accept()).line() == "CAP LS 302", "it has been taken back"
