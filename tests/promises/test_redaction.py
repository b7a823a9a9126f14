"""A line that is redacted on the server is removed here (IRCv3 `draft/message-redaction`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harnesses.irc.tendril import IrcTendril
from storage.chat_log.event import EVERYTHING
from storage.log import Query
from tests.kit.irc_script import WELCOME, Wire, listening
from tests.kit.irc_tendril import irc_config
from tests.kit.openai_script import ScriptedOpenAI

EVERY_LINE = Query(scope=EVERYTHING, limit=100)
SECRET = "the password of the shed is rosebud since monday"


async def asked(wire: Wire, words: str, number: int) -> str:
    """Say `words` on the channel, and return the reply."""
    await wire.say(f"@msgid=q{number} :bob!b@h PRIVMSG #c :{words}")
    said = ""
    while True:
        line = await wire.line()
        if line.startswith("PRIVMSG #c"):
            said += line
        elif line.startswith("PING"):
            await wire.say(f":s PONG s {line.removeprefix('PING ')}")
            if said:  # the server has got it
                return said


async def test_a_redacted_line_is_in_no_log_prompt_or_conversation(tmp_path: Path) -> None:
    async with listening() as listener, ScriptedOpenAI() as script:
        config = irc_config(tmp_path, listener.port, script.url, irc={"channels": ["#c"]})
        tendril = IrcTendril(config)
        running = asyncio.create_task(tendril.run())
        wire = await listener.accept()
        wanted = await wire.offer("message-tags draft/message-redaction")
        assert "draft/message-redaction" in wanted
        await wire.until("CAP END")
        await wire.send(WELCOME)
        await wire.until("JOIN #c")
        await wire.say(
            ":Terra!~t@h JOIN #c",
            ":s 366 Terra #c :End",
            f"@msgid=one :alice!a@h PRIVMSG #c :{SECRET}",
            "@msgid=two :alice!a@h PRIVMSG #c :this stays",
        )
        script.call("search_log", {"query": "rosebud"}).say(f"alice said: {SECRET}")
        assert SECRET in await asked(wire, ".ask what is the password?", 0)
        assert "rosebud" in await asked(wire, ".search password", 1)
        await asked(wire, ".ping", 2)  # by then the log has what was said before
        log = tendril.services.log
        await wire.say(
            ":op!o@h REDACT #other one :elsewhere", ":op!o@h REDACT #c one :not for the log"
        )
        while SECRET in [event.text for event in await log.find(EVERY_LINE)]:
            await asked(wire, ".ping", 3)
        script.say("I do not know.")
        assert "not know" in await asked(wire, ".ask and now?", 4)
        assert "rosebud" not in str(script.requests[-1])
        events = await log.find(EVERY_LINE)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    texts = [event.text for event in events]
    assert "this stays" in texts
    assert not [text for text in texts if SECRET in text]
