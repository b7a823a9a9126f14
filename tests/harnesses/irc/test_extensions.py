"""The tendril on a server with extensions that the packaged ones do not have, and a wrong clock.

What a server or bouncer plays back and we have missed is logged, each line once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harnesses.irc.tendril import IrcTendril
from storage.chat_log.event import PUBLIC, Event
from storage.log import Query
from terrarium.config import Config
from tests.kit.irc_scene import NOBODY
from tests.kit.irc_script import WELCOME, Listener, Wire, listening
from tests.kit.irc_tendril import irc_config, irc_tendril, logged
from tests.kit.openai_script import ScriptedOpenAI

NEAR = 600  # seconds; a test is over sooner
CAPABILITIES = "batch draft/multiline=max-bytes=4096,max-lines=9 message-tags server-time"
ALICE = ":alice!a@h"


@asynccontextmanager
async def let_in(
    listener: Listener, config: Config, *channels: str, joining: str = "", more: str = ""
) -> AsyncIterator[tuple[Wire, IrcTendril]]:
    """A tendril and its connection, in these channels with all that it wants, `more` included."""

    async def welcome() -> Wire:
        wire = await listener.accept()
        await wire.offer(f"{CAPABILITIES} {more}".rstrip())
        await wire.until("CAP END")
        await wire.send(WELCOME)
        await wire.until("JOIN #c")
        for channel in channels:
            await wire.say(f"{joining}:Terra!~t@h JOIN {channel}", f":s 366 Terra {channel} :End")
        return wire

    async with asyncio.TaskGroup() as tasks:
        welcoming = tasks.create_task(welcome())
        async with irc_tendril(config) as tendril:
            yield await welcoming, tendril


async def processed(wire: Wire, *lines: str) -> None:
    """Have the tendril process these lines."""
    await wire.say(*lines, "PING :done")
    await wire.until("PONG")


async def lines_of_alice(tendril: IrcTendril) -> list[Event]:
    await tendril.services.log.flush()
    return list(await tendril.services.log.find(Query(scope=PUBLIC, nick="alice")))


async def test_lines_of_another_year_are_logged_in_the_order_they_come(tmp_path: Path) -> None:
    """Ids follow time: a line of next year would come after all that is said until then."""
    async with listening() as listener:
        config = irc_config(tmp_path, listener.port, NOBODY, irc={"channels": ["#c"]})
        joining = "@time=2099-01-01T00:00:00.000Z "
        async with let_in(listener, config, "#c", joining=joining) as (wire, tendril):
            await processed(
                wire,
                f"@time=2099-01-01T00:00:01.000Z {ALICE} PRIVMSG #c :of tomorrow",
                f"{ALICE} PRIVMSG #c :of now",
                f"@time=9999-12-31T23:59:59.999Z {ALICE} PRIVMSG #c :of the last day",
                f"@time=yesterday {ALICE} PRIVMSG #c :of no time",
            )
            events = await lines_of_alice(tendril)
    texts = [event.text for event in sorted(events, key=lambda event: event.id)]
    assert texts == ["of tomorrow", "of now", "of the last day", "of no time"]
    now = time.time()
    for event in events:
        assert abs(event.id / 1000 - now) < NEAR, event
        assert abs(event.time.timestamp() - now) < NEAR, event


async def test_a_line_of_ours_is_logged_with_the_nick_that_others_saw(tmp_path: Path) -> None:
    async with listening() as listener:
        config = irc_config(tmp_path, listener.port, NOBODY, irc={"channels": ["#c"]})
        more = "echo-message labeled-response"
        async with let_in(listener, config, "#c", more=more) as (wire, _):
            await wire.say(":bob!b@h PRIVMSG #c :.ping")
            tags, _, rest = (await wire.until("@label=")).partition(" ")
            while rest != "PRIVMSG #c :bob: pong":
                await wire.say(f"{tags} :s ACK")
                tags, _, rest = (await wire.until("@label=")).partition(" ")
            await processed(wire, f"{tags} :Terra!~t@h {rest}", ":Terra!~t@h NICK :Other")
    own = [nick for kind, nick, text in await logged(config) if text == "bob: pong"]
    assert own == ["Terra"]


async def test_a_question_of_several_lines_has_one_answer_and_is_logged(tmp_path: Path) -> None:
    async with listening() as listener, ScriptedOpenAI() as script:
        config = irc_config(tmp_path, listener.port, script.url, irc={"channels": ["#c"]})
        async with let_in(listener, config, "#c") as (wire, tendril):
            script.say("Because.")
            said, private = (f"@batch={number} {ALICE} PRIVMSG #c :" for number in (7, 8))
            await wire.say(
                f"{ALICE} BATCH +8 draft/multiline #c",
                f"{private}first of three",
                f"{private}[nolog] second of three",
                f"{private}third of three",
                "BATCH -8",
                f"{ALICE} BATCH +7 draft/multiline #c",
                f"{said}.terrarium why is",
                f"{said}.ping an odd",
                f"@draft/multiline-concat;{said[1:]} word?",
                "BATCH -7",
            )
            assert await wire.until("PRIVMSG #c") == "PRIVMSG #c :alice: Because."
            events = await lines_of_alice(tendril)
    assert [event.text for event in events] == [".terrarium why is", ".ping an odd word?"]
    [request] = script.requests
    asked = request["messages"][-1]["content"]
    assert asked.endswith("why is\n.ping an odd word?"), asked
    assert "three" not in asked
    assert asked.count("why is") == asked.count("odd word") == 1


async def test_lines_that_are_played_back_are_logged_once_in_each_channel(tmp_path: Path) -> None:
    lines = ["first", "", "second", "", "first"]
    async with listening() as listener:
        config = irc_config(tmp_path, listener.port, NOBODY, irc={"channels": ["#c", "#d"]})
        async with let_in(listener, config, "#c", "#d") as (wire, _):
            await processed(wire, f"@msgid=m1 {ALICE} PRIVMSG #c :heard live")
        later = datetime.now(UTC) + timedelta(seconds=5)
        tags = f"@batch=9;time={later:%Y-%m-%dT%H:%M:%S}.000Z;msgid="
        for _ in range(2):
            async with let_in(listener, config, "#c", "#d") as (wire, _):
                await processed(
                    wire,
                    ":s BATCH +9 chathistory #c",
                    f"{tags}m2 {ALICE} BATCH +1 draft/multiline #c",
                    *(f"@batch=1 {ALICE} PRIVMSG #c :{line}" for line in lines),
                    ":s BATCH -1",
                    *(f"{tags}m3 {ALICE} PRIVMSG {name} :to both" for name in ("#c", "#d")),
                    ":s BATCH -9",
                )
    said = [text for _, nick, text in await logged(config) if nick == "alice"]
    assert said == ["heard live", *lines, "to both", "to both"]
