"""Limit of the number of our files that an IRC line runs through from the socket to the log."""

from __future__ import annotations

from pathlib import Path

from storage.chat_log.event import EVERYTHING
from storage.log import Query
from tests.docs.tracing import FileTrace
from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI

MOST_IRC = 7
"""Files of `harnesses/irc` between the received bytes and the log's `write`."""

MOST_FILES = 17
"""All our files from the received bytes to the durable row; one of them only shields a write in a
thread from the cancellation of its caller."""

WAYS = 8
"""Number of traced lines; only files that all of them ran through count."""


def of_folder(files: set[str], folder: str) -> list[str]:
    """Return the files below a folder, sorted."""
    return sorted(name for name in files if name.startswith(f"{folder}/"))


async def test_a_line_takes_a_short_way_from_the_socket_to_the_log(tmp_path: Path) -> None:
    """The server is real, but the traced lines are passed to the connection directly, so that no
    other code runs at the same time."""
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
            log, client = tendril.services.log, tendril.networks["irc"]._connection
            assert client
            await log.flush()
            ways = []
            for number in range(WAYS):
                line = f":bob!b@host.example PRIVMSG {ROOM} :{number} frogs are awake\r\n".encode()
                with trace.noting() as files:
                    client.data_received(line)
                    await log.flush()
                ways.append(files)
            events = await log.find(Query(scope=EVERYTHING, nick="bob"))
            assert [event.text for event in events] == [f"{n} frogs are awake" for n in range(WAYS)]
    # The intersection excludes code that runs occasionally, such as timers and housekeeping.
    way = set.intersection(*ways)
    irc = of_folder(way, "harnesses/irc")
    assert len(irc) <= MOST_IRC, irc
    assert len(way) <= MOST_FILES, "\n".join(sorted(way))
