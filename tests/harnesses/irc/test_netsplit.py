"""A network of two servers that falls apart and comes together again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.kit.irc_client import IrcClient, irc_client, irc_member
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.netsplit import hub
from tests.kit.openai_script import ScriptedOpenAI


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
