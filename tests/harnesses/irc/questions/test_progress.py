"""What people see while they wait for an answer: typing notifications, or one line."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harnesses.irc.protocol.message import ISupport
from harnesses.irc.questions.handler import STILL_AT_IT, TYPING_AFTER, TYPING_INTERVAL
from harnesses.irc.settings import IrcSettings
from tests.harnesses.irc.questions.test_handler import until_pending
from tests.kit.irc_client import irc_client
from tests.kit.irc_scene import scripted_room
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import inspircd
from tests.kit.jumping_loop import JumpingLoop, jump
from tests.kit.openai_script import Answer, ScriptedOpenAI

AFTER = IrcSettings().progress_after


async def one_line_of_progress(data: Path) -> None:
    async with scripted_room(data, "alice", "bob") as (script, tendril, (alice, bob)):
        script.call("search_log", {"query": "pump"}).think("At last.").think("Too.")
        await alice.say(ROOM, ".terrarium who fixed the pump?")
        await script.arrived(2)
        await bob.say(ROOM, ".terrarium and what is a pump?")
        await script.arrived(3)
        jump(AFTER)
        await bob.expect(rf":Terra!\S+ PRIVMSG {ROOM} :searching the log for pump \.\.\.$")
        jump(AFTER)
        await bob.settle()  # bob is not told again
        script.release()
        await alice.expect(r":alice: At last\.$")
        await bob.expect(r":bob: Too\.$")  # perhaps before it
        assert sum("searching" in line for line in alice.lines) == 1
        await until_pending(alice, tendril, 0)
        script.hold().think("Again.")
        await alice.say(ROOM, ".terrarium once more?")
        await script.arrived(4)
        jump(AFTER)
        await alice.expect(rf"PRIVMSG {ROOM} :{STILL_AT_IT}$")  # another wait, another line
        script.release()
        await alice.expect(r":alice: Again\.$")
    said = [text for _, _, text in await logged(tendril.config)]
    assert "alice: At last." in said
    assert not any("searching" in text or STILL_AT_IT in text for text in said)
    assert not any(STILL_AT_IT in str(request) for request in script.requests)


def test_a_channel_is_told_once_what_is_being_done_and_no_log_keeps_that(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(one_line_of_progress(tmp_path))


async def typing(data: Path) -> None:
    async with inspircd() as ircd, ScriptedOpenAI() as script:
        config = irc_config(data, ircd.port, script.url)
        async with irc_tendril(config), irc_client(ircd.port, "alice", "message-tags") as alice:
            await alice.join(ROOM)
            await alice.ask(".terrarium what is 2 * 3?", "2 × 3 = 6")
            await alice.settle()
            assert not any("TAGMSG" in line for line in alice.lines), "that came at once"
            script.answer(Answer("At last.", late=True))
            await alice.say(ROOM, ".terrarium what takes so long?")
            await script.arrived(1)
            for seconds in (TYPING_AFTER, TYPING_INTERVAL):
                jump(seconds)
                await alice.expect(rf"@\S*\+typing=active\S* :Terra!\S+ TAGMSG :{ROOM}$")
            jump(AFTER)
            script.release()
            await alice.expect(r":alice: At last\.$")
            await alice.expect(rf"@\S*\+typing=done\S* :Terra!\S+ TAGMSG :{ROOM}$")
            assert not any(STILL_AT_IT in line for line in alice.lines)


def test_a_client_sees_us_type_until_a_slow_answer_is_there(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(typing(tmp_path))


def test_a_server_that_passes_no_typing_on_says_so() -> None:
    server = ISupport()
    assert server.passes_tag("typing")
    for denied, passes in {"*": False, "typing": False, "*,-typing": True, "react": True}.items():
        assert server.with_tokens([f"CLIENTTAGDENY={denied}"]).passes_tag("typing") is passes
