"""A line from the socket to the log runs through few of our files, so that one can follow it."""

from __future__ import annotations

from pathlib import Path

from storage.chat_log.event import EVERYTHING
from storage.log import Query
from tests.docs.tracing import FileTrace
from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI

MOST_IRC = 10
"""Files of `harnesses/irc` between the bytes and the log's `write`."""

MOST_FILES = 18
"""Files from the bytes to the durable row, those of `storage` included. The aim is 16; the seam
between SQLite and PostgreSQL passes two more."""

WAYS = 8
"""Lines whose ways are compared: what only some pass is not on the way of each."""


def of_folder(files: set[str], folder: str) -> list[str]:
    """The files below a folder, sorted."""
    return sorted(name for name in files if name.startswith(f"{folder}/"))


async def test_a_line_takes_a_short_way_from_the_socket_to_the_log(tmp_path: Path) -> None:
    """The server is real; the lines are given to the connection by hand, so that no other runs
    beside it."""
    with FileTrace() as trace:
        async with (
            ScriptedOpenAI() as script,
            embedded_ircd() as ircd,
            irc_client(ircd.port, "alice") as alice,
            irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
        ):
            await alice.join(ROOM)
            await alice.say(ROOM, ".ping")
            await alice.expect("pong")
            log, client = tendril.services.log, tendril.networks["irc"]._client
            assert client
            await log.flush()
            ways = []
            for number in range(WAYS):
                line = f":bob!b@host.example PRIVMSG {ROOM} :{number} frogs are awake\r\n".encode()
                with trace.noting() as files:
                    client._connection.data_received(line)
                    await log.flush()
                ways.append(files)
            events = await log.find(Query(scope=EVERYTHING, nick="bob"))
            assert [event.text for event in events] == [f"{n} frogs are awake" for n in range(WAYS)]
    # What else runs in this process at times (a timer, the housekeeping) is not on the way of each.
    way = set.intersection(*ways)
    irc, storage = of_folder(way, "harnesses/irc"), of_folder(way, "storage")
    assert len(irc) <= MOST_IRC, irc
    assert len(irc) + len(storage) <= MOST_FILES, [*irc, *storage]
