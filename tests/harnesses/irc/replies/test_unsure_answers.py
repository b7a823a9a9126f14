"""An answer that the server has taken, on a connection that was cut before it could say so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from terrarium.backoff import Backoff
from tests.kit.irc_client import irc_member
from tests.kit.irc_tendril import (
    ROOM,
    conversation_with,
    irc_config,
    irc_tendril,
    kept_turns,
    logged,
)
from tests.kit.ircd import inspircd
from tests.kit.openai_script import ScriptedOpenAI


class Wire:
    """A wire to a server that carries nothing back from the first of certain words on, until it is
    cut."""

    def __init__(self, port: int, words: bytes) -> None:
        self.port, self._server_port, self._words = 0, port, words
        self._is_deaf = False
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        """End the connections; the next ones carry everything."""
        self._words, self._is_deaf = b"\n\n", False
        for writer in self._writers:
            writer.close()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry the lines of one connection."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers += (writer, far_writer)
        back = asyncio.create_task(self._carry(far_reader, writer, back=True))
        await self._carry(reader, far_writer, back=False)
        await back

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool
    ) -> None:
        try:
            while line := await reader.readline():
                if not back and self._words in line:
                    self._is_deaf = True
                if not (back and self._is_deaf):
                    writer.write(line)
        except ConnectionError:
            pass
        writer.close()


@asynccontextmanager
async def wire(port: int, words: bytes) -> AsyncIterator[Wire]:
    """A wire to the server at a port of this machine."""
    made = Wire(port, words)
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.cut()
        server.close()


async def test_an_answer_that_the_server_plays_back_is_not_said_again(tmp_path: Path) -> None:
    async with (
        inspircd() as ircd,
        ScriptedOpenAI() as script,
        irc_member(ircd.port, "alice") as alice,
        wire(ircd.port, b"the answer") as line,
    ):
        await alice.send(f"MODE {ROOM} +H 50:1h")
        config = irc_config(tmp_path, line.port, script.url)
        script.say("the answer")
        async with irc_tendril(config) as tendril:
            tendril.networks["irc"]._backoff = Backoff(0.1, 0.1)
            await alice.say(ROOM, ".terrarium what is it?")
            await alice.expect(rf":Terra!\S+ PRIVMSG {ROOM} :alice: the answer")
            line.cut()
            await alice.expect(rf":Terra_?!\S+ JOIN :?{ROOM}")
            assert len(await kept_turns(tendril, conversation_with("alice"))) == 1
            await alice.ask(".ping", "alice: pong")
    assert sum("PRIVMSG" in said and "the answer" in said for said in alice.lines) == 1
    kept = [text for kind, _, text in await logged(config) if kind == "PRIVMSG"]
    assert kept.count("alice: the answer") == 1
