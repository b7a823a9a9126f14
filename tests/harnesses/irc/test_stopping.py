"""SIGTERM in the middle of questions: each is answered, or who asked is told to ask again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from harnesses.core.tendril.turns import RESTARTED
from tests.kit.command import begun
from tests.kit.irc_client import irc_client
from tests.kit.ircd import inspircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.terrarium import terrarium_up

pytestmark = pytest.mark.process
ASKING = ".terrarium tell me a story about toads"


async def test_a_question_is_answered_and_another_refused_before_we_quit(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, inspircd() as ircd:
        settings = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(ircd.port)}
        settings |= {"AGENT_API_URL": script.url}
        async with (
            irc_client(ircd.port, "ada") as ada,
            irc_client(ircd.port, "bob") as bob,
            begun("run", "irc", "--data", "data", cwd=tmp_path, **settings) as process,
            asyncio.timeout(PATIENCE),
        ):
            for person in (ada, bob):
                await person.join("#terrarium")
            await ada.expect(r"^:Terra!\S+ JOIN ")
            script.say("Toads live in ponds.").hang("Once")
            await ada.ask(ASKING, "ada: Toads live in ponds", room="#terrarium")
            await bob.say("#terrarium", ASKING)
            await script.arrived(2)
            process.send_signal(signal.SIGTERM)
            await bob.expect(f"bob: {RESTARTED}")
            await bob.expect(r"^:Terra!\S+ QUIT ")
            assert await process.wait() == 0


@pytest.mark.slow
async def test_everything_stops_in_an_order_in_which_answers_still_arrive(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        terrarium_up(tmp_path, MODEL_UPSTREAM=script.url) as bot,
        irc_client(bot.irc_port, "ada") as ada,
    ):
        await ada.join("#terrarium")
        await ada.settle()
        asked = len(script.requests)
        script.think("Toads live in ponds.")
        await ada.say("#terrarium", ASKING)
        await script.arrived(asked + 1)
        bot.process.send_signal(signal.SIGTERM)
        script.release()
        await ada.expect("ada: Toads live in ponds")
