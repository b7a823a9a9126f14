"""What happens to a bot on real networks: lost connections, netsplits, closed channels."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from harnesses.core.tendril.status import ProcessState, read_report
from harnesses.irc.tendril import IrcTendril
from tests.kit.irc_client import IrcClient, irc_client, irc_member
from tests.kit.irc_network import Ears, joined, running
from tests.kit.irc_scene import NOBODY
from tests.kit.irc_tendril import (
    ROOM,
    conversation_with,
    irc_config,
    irc_tendril,
    kept_turns,
    logged,
)
from tests.kit.ircd import OPERATORS, SERVERS, embedded_ircd, inspircd, ngircd
from tests.kit.jumping_loop import JumpingLoop, jump
from tests.kit.netsplit import hub
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE, until
from tests.kit.ports import free_port

OPER = OPERATORS + "".join(f'<module name="{name}">' for name in ("sanick", "sajoin", "redirect"))


@asynccontextmanager
async def a_bot(
    data: Path, port: int, url: str, **irc: Any
) -> AsyncIterator[tuple[IrcTendril, IrcClient]]:
    """A bot, and somebody with it in the room."""
    async with (
        irc_client(port, "alice") as alice,
        irc_tendril(irc_config(data, port, url, irc=irc)) as tendril,
    ):
        await alice.join(ROOM)
        yield tendril, alice


async def until_state(data: Path, *words: str) -> str:
    """The status once it has all these words; what the process does is seen nowhere else."""
    async with asyncio.timeout(PATIENCE):
        while True:
            said = read_report(data, "irc")
            text = f"{said.state}: {said.detail}" if said else ""
            if all(word in text for word in words):
                return text
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", [inspircd, ngircd])
async def test_an_answer_that_is_ready_while_the_connection_is_away_is_given_after_it(
    tmp_path: Path, kind: Any
) -> None:
    port = free_port()
    async with ScriptedOpenAI() as script:
        script.hang("the answer you waited for").say("Yes.")
        config = irc_config(tmp_path, port, script.url)
        async with irc_tendril(config, joins=False) as tendril:
            async with kind(port) as first, irc_client(port, "alice") as alice:
                await alice.meet()
                await alice.say(ROOM, ".terrarium what is it?")
                await script.arrived(1)
                await first.kill()
            await until(lambda: not tendril.networks["irc"].connected.is_set())
            script.release()
            async with kind(port):
                # Whoever comes back may be later than the answer; it is kept once it is said.
                [turn] = await kept_turns(tendril, conversation_with("alice", kind.__name__))
                assert "the answer you waited for" in str(turn.messages)
    lines = [text for _, nick, text in await logged(config) if nick == "Terra" and text]
    assert lines == ["alice: the answer you waited for"]


@pytest.mark.parametrize("server", SERVERS)
async def test_words_that_a_channel_refuses_are_neither_logged_nor_remembered(
    tmp_path: Path, server: str
) -> None:
    async with ScriptedOpenAI() as script, SERVERS[server]() as ircd:
        async with (
            irc_member(ircd.port, "keeper") as keeper,  # before anybody else: its operator
            a_bot(tmp_path, ircd.port, script.url) as (tendril, alice),
        ):
            await keeper.send(f"MODE {ROOM} +mv alice")
            await keeper.settle()
            script.say("Nobody hears this.")
            await alice.say(ROOM, ".terrarium which animal says ribbit?")
            told = await alice.expect(r":Terra!\S+ NOTICE alice :(.*)")
            assert f"[{ROOM}] I cannot answer there" in told[1]
            assert await kept_turns(tendril, conversation_with("alice", server)) == []
            await alice.ask(".ping", r":Terra!\S+ NOTICE alice :.* I cannot answer there")
        said = await logged(irc_config(tmp_path, ircd.port, script.url))
    assert not any("Nobody hears" in text for _, _, text in said)


async def test_a_nick_that_an_operator_takes_is_regained_and_an_address(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        inspircd(extra=OPER) as ircd,
        a_bot(tmp_path, ircd.port, script.url) as (_, alice),
    ):
        await alice.become_operator()
        await alice.send("SANICK Terra Guest123")
        await alice.expect(r":Terra!\S+ NICK :?Guest123")
        await alice.ask("Terra: hi", rf":Guest123!\S+ PRIVMSG {ROOM} :alice: ok")
        await alice.expect(r":Guest123!\S+ NICK :?Terra$")


async def test_without_monitor_a_nick_whose_holder_shares_no_channel_is_regained() -> None:
    async with (
        ngircd() as ircd,
        irc_client(ircd.port, "Terra") as holder,
        joined(ircd.port, Ears()) as network,
    ):
        assert network.nick == "Terra_"
        assert await network.say("PRIVMSG", "nobody", "hello") == [], "it is not said"
        await holder.quit()
        network.send_line("ISON Terra")  # as the session asks every half minute
        await until(lambda: network.nick == "Terra")


async def test_a_bot_in_one_of_its_channels_is_well_and_names_the_others(tmp_path: Path) -> None:
    async with inspircd(extra=OPER) as ircd, irc_client(ircd.port, "keeper") as keeper:
        for channel, modes in (("#ban", "+b Terra!*@*"), ("#key", "+k sesame"), ("#inv", "+i")):
            await keeper.join(channel)
            await keeper.send(f"MODE {channel} {modes}")
        await keeper.settle()
        channels = (ROOM, "#ban", "#key", "#inv")
        irc = {"channels": channels, "admins": ["keeper!*@*"]}
        config = irc_config(tmp_path, ircd.port, NOBODY, irc=irc)
        async with irc_tendril(config, joins=False) as tendril:
            words = ("#ban: Cannot join", "(474)", "#key: Cannot join", "#inv: Cannot join")
            status = await until_state(tmp_path, "ready", *words)
            assert status.startswith(f"{ProcessState.READY}: Terra on {ROOM}")
            await keeper.ask(".status", "not in #ban: Cannot join", room="Terra")
            await keeper.send("INVITE Terra #inv")
            await keeper.expect(r":Terra!\S+ JOIN :?#inv")
            await keeper.join("#far")
            await keeper.send("INVITE Terra #far")
            await keeper.expect(r":Terra!\S+ JOIN :?#far")
            async with irc_client(ircd.port, "mallory") as mallory:
                await mallory.join("#trap")
                await mallory.send("INVITE Terra #trap")
                await mallory.ask(".ping", "pong", room="Terra")
                assert "#trap" not in tendril.networks["irc"].roster.channels


async def test_the_status_says_when_services_do_not_know_us(tmp_path: Path) -> None:
    async with embedded_ircd() as ircd:
        irc = {"sasl_username": "terra", "sasl_password": "sesame", "sasl": ["PLAIN"]}
        async with irc_tendril(irc_config(tmp_path, ircd.port, NOBODY, irc=irc)):
            await until_state(tmp_path, "ready", "the server offers no SASL")


async def test_a_channel_that_forwards_and_one_that_we_are_forced_into_are_left() -> None:
    ears = Ears()
    async with inspircd(extra=OPER) as ircd, irc_client(ircd.port, "keeper") as keeper:
        await keeper.become_operator()
        for channel in ("#to", "#c", "#forced"):
            await keeper.join(channel)
        await keeper.send("MODE #c +lL 1 #to")
        await keeper.settle()
        async with running(ircd.port, ears, channels=("#c", "#d")) as network:
            await keeper.expect(r":Terra!\S+ JOIN :?#to")
            await keeper.expect(r":Terra!\S+ PART :?#to")
            await keeper.send("SAJOIN Terra #forced")
            await keeper.expect(r":Terra!\S+ PART :?#forced")
            assert network.roster.channels == ["#d"]
            assert [refusal.numeric for refusal in network.session.refusals] == ["470"]
    assert {event.channel for event in ears.events} == {"#d"}


def test_tls_to_a_port_without_it_says_so() -> None:
    async def connect() -> None:
        async with ngircd() as ircd, running(ircd.port, Ears(), tls=True):
            while not errors():  # in steps: the time-out of the handshake is the first to be over
                jump(1.0)
                await asyncio.sleep(0.01)

    def errors() -> list[str]:
        return [entry["error"] for entry in logs if entry["event"] == "irc.connect_failed"]

    with capture_logs() as logs, asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(connect())
    assert "does not speak TLS" in errors()[0]


async def has_come(watcher: IrcClient, nick: str) -> None:
    """`nick`, on the other server, is in the room for those of this one: the two are linked."""
    await watcher.expect(rf"^:{nick}!\S+ JOIN :?{ROOM}")


async def test_a_netsplit_is_logged_once_and_nothing_is_answered_twice(tmp_path: Path) -> None:
    async with hub() as net, ScriptedOpenAI() as script:
        config = irc_config(tmp_path, net.ircd.port, script.url)
        async with irc_tendril(config), irc_member(net.ircd.port, "bob") as bob:
            async with (
                net.leaf() as leaf,
                irc_member(leaf.port, "alice") as alice,
                irc_client(leaf.port, "carol") as carol,
            ):
                await has_come(bob, "alice")
                await carol.join(ROOM)
                await has_come(bob, "carol")
                script.say("Before.")
                await alice.ask(".terrarium one", "alice: Before")
                await leaf.kill()
                for _ in range(2):
                    await bob.expect(r"^:(alice|carol)!\S+ QUIT ")
                await bob.ask(".ping", "bob: pong")
            async with net.leaf() as leaf, irc_member(leaf.port, "alice") as alice:
                await has_come(bob, "alice")
                script.say("After.")
                await alice.ask(".terrarium two", "alice: After")
                await bob.say(ROOM, ".ping")
                await alice.expect("bob: pong")
    seen = await logged(config)
    kinds = [kind for kind, nick, _ in seen if nick == "alice"]
    assert kinds[:5] == ["JOIN", "PRIVMSG", "QUIT", "JOIN", "PRIVMSG"], seen
    assert [kind for kind, nick, _ in seen if nick == "carol"] == ["JOIN", "QUIT"], seen
    reasons = {text for kind, nick, text in seen if (kind, nick) == ("QUIT", "carol")}
    assert reasons <= {"*.net *.split", "inspircd.test leaf.test"}
    assert len(script.requests) == 2
    said = Counter(text for kind, nick, text in seen if (kind, nick) == ("PRIVMSG", "Terra"))
    assert said == {"alice: Before.": 1, "alice: After.": 1, "bob: pong": 2}
