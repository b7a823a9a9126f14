"""What bots on irc3's own connection get wrong, each with the test that shows we do not.

1. Bytes cut by the network, bytes that are not UTF-8: test_irc_network (on each server),
   `test_each_byte_may_come_by_itself` in test_irc_link.
2. Message tags on numerics, server-time: `test_with_server_time_the_events_have_the_servers_time`
   in test_irc_network, `test_tags_on_numerics_do_no_harm` in test_irc_registration.
3. Taken nicks: `test_with_two_nicks_taken_the_third_is_ours` in test_irc_network,
   `test_refused_nicks_are_asked_for_slowly` in test_irc_link.
4. Our own nick changes: `test_plugins_of_irc3_work_and_hear_our_nick_of_today` in test_irc_network.
5. SASL: test_irc_sasl, test_irc_run, and on Atheme test_irc_services.
6. CAP 302 and lines without a source: test_irc_registration, test_irc_run.
7. Reconnecting: `test_waits_grow_while_nobody_listens`,
   `test_a_server_that_does_not_want_us_is_left_in_peace` in test_irc_link,
   `test_after_our_own_quit_there_is_no_return` in test_irc_network.
8. Cutting lines: `test_answers_of_any_script_arrive_whole` here, test_irc_split.
9. Flood control: test_irc_pacing, `test_lines_that_did_not_go_out_are_not_returned` in
   test_irc_network.
10. Signals: `test_after_our_own_quit_there_is_no_return` in test_irc_network.
11. Symbols before nicks: `test_all_symbols_come_off_an_owners_name` in test_irc_network.
12. The order of events: `test_events_come_in_the_order_of_the_wire` in test_irc_network.
13. What importing irc3 does to the process: `test_irc3_does_not_change_the_process` in
    test_irc_link.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.irc_client import irc_client
from tests.kit.irc_network import Ears, joined
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import SERVERS, inspircd

ANSWERS = 200
SCRIPTS = (
    "漢字かな交じり文、",
    "👩‍🚀🇩🇪👍🏽 ",
    "for x in y: print(f'{x:>10}')  ",
    "Grüße aus Österreich. ",
)


def answers() -> list[str]:
    """Answers of mixed scripts, the same each time; no line of theirs begins or ends blank."""
    chance = random.Random(7)
    return [
        f"{number}:"
        + "".join(chance.choice(SCRIPTS) * chance.randint(1, 20) for _ in range(3))
        + "."
        for number in range(ANSWERS)
    ]


@pytest.mark.parametrize("server", ["inspircd", "ngircd"])
async def test_answers_of_any_script_arrive_whole(server: str) -> None:
    async with (
        SERVERS[server]() as ircd,
        joined(ircd.port, Ears(), lines_per_second=100_000) as network,
        irc_client(ircd.port, "alice") as alice,
    ):
        await alice.join("#c")
        sent = [line for answer in answers() for line in await network.say("PRIVMSG", "#c", answer)]
        await network.say("NOTICE", "alice", "end")
        await alice.expect("NOTICE alice :end")
        received = [line.split(" :", 1)[1] for line in alice.lines if " PRIVMSG #c " in line]
        assert received == sent
        assert max(map(len, alice.received)) <= 510
        whole = "".join("".join(sent).split())
        assert whole == "".join("".join(answers()).split())


async def test_history_is_neither_answered_nor_logged_again(tmp_path: Path) -> None:
    async with inspircd() as ircd, irc_client(ircd.port, "alice") as alice:
        await alice.join(ROOM)
        await alice.send(f"MODE {ROOM} +H 50:1h")
        await alice.expect(r"MODE \S+ \+H")
        config = irc_config(tmp_path, ircd.port, "http://127.0.0.1:9")
        for number in range(2):
            async with irc_tendril(config):
                await alice.say(ROOM, f".ping {number}")
                await alice.expect("Terra!.* PRIVMSG .*alice: pong")
                await alice.settle()
        pongs = [line for line in alice.lines if "alice: pong" in line]
        assert len(pongs) == 2, "the second start has not answered the first question again"
    seen = [
        text for kind, nick, text in await logged(config) if kind == "PRIVMSG" and nick == "alice"
    ]
    assert seen == [".ping 0", ".ping 1"]
