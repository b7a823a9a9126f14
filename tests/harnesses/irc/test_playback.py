"""What a server or bouncer plays back and we have missed is logged, each line once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.kit.irc_script import WELCOME, Listener, Wire, listening
from tests.kit.irc_tendril import irc_config, irc_tendril, logged

NOBODY = "http://127.0.0.1:9"
ALICE = ":alice!a@h"


async def welcomed(listener: Listener, *others: str) -> Wire:
    """The next connection, let in with the capabilities of history and into #c and `others`."""
    wire = await listener.accept()
    await wire.offer("batch draft/multiline message-tags server-time")
    await wire.until("CAP END")
    await wire.send(WELCOME)
    await wire.until("JOIN #c")
    for channel in ("#c", *others):
        await wire.say(f":Terra!~t@h JOIN {channel}", f":s 366 Terra {channel} :End")
    return wire


async def test_every_line_of_a_multiline_message_that_is_played_back_is_logged_once(
    tmp_path: Path,
) -> None:
    async with listening() as server:
        config = irc_config(tmp_path, server.port, NOBODY, irc={"channels": ["#c"]})
        letting_in = asyncio.create_task(welcomed(server))
        async with irc_tendril(config):
            wire = await letting_in
            await wire.say(f"@msgid=m1 {ALICE} PRIVMSG #c :heard live", "PING :live")
            await wire.until("PONG")
        later = datetime.now(UTC) + timedelta(seconds=5)
        lines = ["first", "", "second", "", "first"]
        missed = [
            ":s BATCH +9 chathistory #c",
            f"@batch=9;msgid=m2;time={later:%Y-%m-%dT%H:%M:%S}.000Z {ALICE}"
            " BATCH +1 draft/multiline #c",
            *(f"@batch=1 {ALICE} PRIVMSG #c :{line}" for line in lines),
            ":s BATCH -1",
            ":s BATCH -9",
        ]
        for _ in range(2):
            letting_in = asyncio.create_task(welcomed(server))
            async with irc_tendril(config):
                wire = await letting_in
                await wire.say(*missed, "PING :played")
                await wire.until("PONG")
    said = [text for _, nick, text in await logged(config) if nick == "alice"]
    assert said == ["heard live", *lines]


async def test_a_message_to_two_channels_that_is_played_back_is_logged_in_both(
    tmp_path: Path,
) -> None:
    async with listening() as server:
        config = irc_config(tmp_path, server.port, NOBODY, irc={"channels": ["#c", "#d"]})
        letting_in = asyncio.create_task(welcomed(server, "#d"))
        async with irc_tendril(config):
            wire = await letting_in
            await wire.say(f"@msgid=m1 {ALICE} PRIVMSG #c :heard live", "PING :live")
            await wire.until("PONG")
        later = datetime.now(UTC) + timedelta(seconds=5)
        tags = f"@batch=9;msgid=m2;time={later:%Y-%m-%dT%H:%M:%S}.000Z"
        letting_in = asyncio.create_task(welcomed(server, "#d"))
        async with irc_tendril(config):
            wire = await letting_in
            await wire.say(
                ":s BATCH +9 chathistory #c",
                f"{tags} {ALICE} PRIVMSG #c :to both",
                f"{tags} {ALICE} PRIVMSG #d :to both",
                ":s BATCH -9",
                "PING :played",
            )
            await wire.until("PONG")
    said = [text for _, nick, text in await logged(config) if nick == "alice"]
    assert said == ["heard live", "to both", "to both"]
