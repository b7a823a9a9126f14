"""The tendril on a server with extensions that the packaged ones do not have, and a wrong clock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from storage.chat_log.event import PUBLIC
from storage.log import Query
from tests.kit.irc_script import WELCOME, Listener, Wire, listening
from tests.kit.irc_tendril import irc_config, irc_tendril, logged
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.ports import free_port

NEAR = 600  # seconds; a test is over sooner


CAPABILITIES = "batch draft/multiline=max-bytes=4096,max-lines=9 message-tags server-time"


async def let_in(listener: Listener, joining: str = "", more: str = "") -> Wire:
    """The tendril's connection, once it is in #c with all that it wants, `more` included."""
    wire = await listener.accept()
    await wire.offer(f"{CAPABILITIES} {more}".rstrip())
    await wire.until("CAP END")
    await wire.send(WELCOME)
    await wire.until("JOIN #c")
    await wire.say(f"{joining}:Terra!~t@h JOIN #c", ":s 366 Terra #c :End")
    return wire


async def test_lines_of_another_year_are_logged_in_the_order_of_their_coming(
    tmp_path: Path,
) -> None:
    """Ids follow time: a line of next year would come after all that is said until then."""
    async with listening() as listener, asyncio.TaskGroup() as tasks:
        url = f"http://127.0.0.1:{free_port()}/v1"
        config = irc_config(tmp_path, listener.port, url, irc={"channels": ["#c"]})
        serving = tasks.create_task(let_in(listener, "@time=2099-01-01T00:00:00.000Z "))
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
            await tendril.services.log.flush()
            events = await tendril.services.log.find(Query(scope=PUBLIC, nick="alice"))
    texts = [event.text for event in sorted(events, key=lambda event: event.id)]
    assert texts == ["of tomorrow", "of now", "of the last day", "of no time"]
    now = time.time()
    for event in events:
        assert abs(event.id / 1000 - now) < NEAR, event
        assert abs(event.time.timestamp() - now) < NEAR, event


async def test_a_line_of_ours_is_logged_with_the_nick_that_the_server_showed_it_with(
    tmp_path: Path,
) -> None:
    async with listening() as listener, asyncio.TaskGroup() as tasks:
        url = f"http://127.0.0.1:{free_port()}/v1"
        config = irc_config(tmp_path, listener.port, url, irc={"channels": ["#c"]})
        serving = tasks.create_task(let_in(listener, more="echo-message labeled-response"))
        async with irc_tendril(config):
            wire = await serving
            await wire.say(":bob!b@h PRIVMSG #c :.ping")
            tags, _, rest = (await wire.until("@label=")).partition(" ")
            while rest != "PRIVMSG #c :bob: pong":
                await wire.say(f"{tags} :s ACK")
                tags, _, rest = (await wire.until("@label=")).partition(" ")
            await wire.say(f"{tags} :Terra!~t@h {rest}", ":Terra!~t@h NICK :Other", "PING :done")
            await wire.until("PONG")
    own = [nick for kind, nick, text in await logged(config) if text == "bob: pong"]
    assert own == ["Terra"]


async def test_a_question_of_several_lines_is_answered_once_and_logged_line_by_line(
    tmp_path: Path,
) -> None:
    async with listening() as listener, ScriptedOpenAI() as script, asyncio.TaskGroup() as tasks:
        config = irc_config(tmp_path, listener.port, script.url, irc={"channels": ["#c"]})
        serving = tasks.create_task(let_in(listener))
        async with irc_tendril(config) as tendril:
            wire = await serving
            script.say("Because.")
            said = "@batch=7 :alice!a@h PRIVMSG #c :"
            private = "@batch=8 :alice!a@h PRIVMSG #c :"
            await wire.say(
                ":alice!a@h BATCH +8 draft/multiline #c",
                f"{private}first of three",
                f"{private}[nolog] second of three",
                f"{private}third of three",
                "BATCH -8",
                ":alice!a@h BATCH +7 draft/multiline #c",
                f"{said}.terrarium why is",
                f"{said}.ping an odd",
                f"@draft/multiline-concat;{said[1:]} word?",
                "BATCH -7",
            )
            assert await wire.until("PRIVMSG #c") == "PRIVMSG #c :alice: Because."
            await tendril.services.log.flush()
            events = await tendril.services.log.find(Query(scope=PUBLIC, nick="alice"))
    assert [event.text for event in events] == [".terrarium why is", ".ping an odd word?"]
    [request] = script.requests
    asked = request["messages"][-1]["content"]
    assert asked.endswith("why is\n.ping an odd word?"), asked
    assert "three" not in asked
    assert asked.count("why is") == asked.count("odd word") == 1
