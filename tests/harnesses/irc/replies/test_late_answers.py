"""Answers that are ready while the connection is away, by a clock that a test puts forward."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harnesses.irc.replies.sender import GIVEN_UP_AFTER, LATE_AFTER
from harnesses.irc.tendril import IrcTendril
from terrarium.backoff import Backoff
from tests.kit.irc_client import irc_client, irc_member
from tests.kit.irc_tendril import ROOM, conversation_with, irc_config, kept_turns, logged
from tests.kit.ircd import embedded_ircd
from tests.kit.jumping_loop import JumpingLoop, jump
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import until
from tests.kit.ports import free_port

MINUTE = 60.0


@asynccontextmanager
async def answer_waiting(data: Path, port: int) -> AsyncIterator[IrcTendril]:
    """A bot whose server has died while it thought, and that has its answer now."""
    async with ScriptedOpenAI() as script:
        script.hang("the answer")
        tendril = IrcTendril(irc_config(data, port, script.url))
        tendril.networks["irc"]._backoff = Backoff(0.1, 0.1)
        running = asyncio.create_task(tendril.run())
        try:
            async with embedded_ircd(port) as ircd, irc_client(port, "alice") as alice:
                await tendril.networks["irc"].all_joined.wait()
                await alice.join(ROOM)
                await alice.say(ROOM, ".terrarium what is it?")
                await script.arrived(1)
                await ircd.kill()
            await until(lambda: not tendril.networks["irc"].connected.is_set())
            script.release()
            await until(lambda: tendril.services.sender._waiting)
            yield tendril
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def said_after(data: Path, seconds: float) -> tuple[list[str], bool]:
    """What the bot says when its connection is back after so many seconds, and whether it
    remembers that it has answered."""
    port = free_port()
    async with answer_waiting(data, port) as tendril:
        jump(seconds)
        async with embedded_ircd(port), irc_member(port, "alice") as alice:
            if not any(" 353 " in line and "Terra" in line for line in alice.lines):
                await alice.expect(r":Terra!\S+ JOIN")
            turns = await kept_turns(tendril, conversation_with("alice"))
            await alice.ask(".ping", "alice: pong")
            # It may have answered before alice was back; the log has what the server has taken.
            await tendril.services.log.flush()
            lines = [text for _, nick, text in await logged(tendril.config) if nick == "Terra"]
            return [line.removeprefix("alice: ") for line in lines if line], bool(turns)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, ["the answer", "pong"]),
        (
            LATE_AFTER.total_seconds() + MINUTE,
            ["(late, as I was away for 2 min) the answer", "pong"],
        ),
        (GIVEN_UP_AFTER.total_seconds() + MINUTE, ["pong"]),
    ],
)
def test_a_late_answer_says_so_and_one_that_is_too_late_is_neither_said_nor_remembered(
    tmp_path: Path, seconds: float, said: list[str]
) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        assert runner.run(said_after(tmp_path, seconds)) == (said, len(said) == 2)
