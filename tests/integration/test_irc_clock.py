"""The log of a server whose clock is wrong."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from storage.chat_log import Query
from storage.event import PUBLIC
from tests.kit.irc_script import WELCOME, Listener, Wire, listening
from tests.kit.irc_tendril import irc_config, irc_tendril
from tests.kit.ircd import free_port

NEAR = 600  # seconds; a test is over sooner


async def let_in(listener: Listener) -> Wire:
    wire = await listener.accept()
    await wire.offer("message-tags server-time")
    await wire.until("CAP END")
    await wire.send(WELCOME)
    await wire.until("JOIN #c")
    await wire.say("@time=2099-01-01T00:00:00.000Z :Terra!~t@h JOIN #c", ":s 366 Terra #c :End")
    return wire


async def test_lines_of_another_year_are_logged_in_the_order_of_their_coming(
    tmp_path: Path,
) -> None:
    """Ids follow time: a line of next year would come after all that is said until then."""
    async with listening() as listener, asyncio.TaskGroup() as tasks:
        url = f"http://127.0.0.1:{free_port()}/v1"
        config = irc_config(tmp_path, listener.port, url, irc={"channels": ["#c"]})
        serving = tasks.create_task(let_in(listener))
        async with irc_tendril(config) as tendril:
            wire = await serving
            await wire.say(
                "@time=2099-01-01T00:00:01.000Z :alice!a@h PRIVMSG #c :of tomorrow",
                ":alice!a@h PRIVMSG #c :of now",
                "@time=9999-12-31T23:59:59.999Z :alice!a@h PRIVMSG #c :of the last day",
                "@time=yesterday :alice!a@h PRIVMSG #c :of no time",
                "PING :done",
            )
            await wire.until("PONG")
            await tendril.log.settle()
            events = await tendril.log.find(Query(scope=PUBLIC, nick="alice"))
    texts = [event.text for event in sorted(events, key=lambda event: event.id)]
    assert texts == ["of tomorrow", "of now", "of the last day", "of no time"]
    now = time.time()
    for event in events:
        assert abs(event.id / 1000 - now) < NEAR, event
        assert abs(event.time.timestamp() - now) < NEAR, event
