"""Long answers: what is said, what `.more` says on, what the link shows, what goes out early."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harnesses.core.tendril.status import ProcessState, StatusFile
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.pastes import Pastes
from storage.settings import log_path
from tests.kit.irc_client import IrcClient, irc_member
from tests.kit.irc_scene import scripted_room
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import Ircd, ngircd
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.web_site import web_site

LINK = r"PRIVMSG \S+ :(?:.* )?\(\d+ more lines: \.more\) (http://127\.0\.0\.1:\d+/paste/(\S+))$"
CODE = "```\nif x:\n    three()\n```"
LONG = f"one\n\ntwo\n{CODE}\n<script>alert(1)</script>\n[a](javascript:alert(1))"


@asynccontextmanager
async def asking(data: Path, url: str, ircd: Ircd, **irc: Any) -> AsyncIterator[IrcClient]:
    """Somebody in the room of a tendril."""
    async with (
        irc_tendril(irc_config(data, ircd.port, url, irc=irc)),
        irc_member(ircd.port, "alice") as alice,
    ):
        yield alice


@asynccontextmanager
async def answering(
    data: Path, web: dict[str, str] | None = None, server: str = "embedded", **irc: Any
) -> AsyncIterator[tuple[ScriptedOpenAI, IrcClient]]:
    """A scripted model and somebody who asks it, with a web site under the settings `web`."""
    async with AsyncExitStack() as stack:
        if web is not None:
            await stack.enter_async_context(web_site(data, settings=web))
        asking = scripted_room(data, "alice", server=server, irc=irc)
        script, _, (alice,) = await stack.enter_async_context(asking)
        yield script, alice


def said(client: IrcClient, target: str = ROOM) -> list[str]:
    """What the bot has said to `target`, line by line."""
    found = [re.search(rf"^:Terra!\S+ PRIVMSG {target} :(.*)$", line) for line in client.lines]
    return [match[1] for match in found if match]


async def test_a_long_answer_ends_with_a_link_to_all_of_it_and_to_its_words_as_written(
    tmp_path: Path,
) -> None:
    # As plain text is what a persona asks for; Markdown would take the underscores and stars.
    words = f"{LONG}\npkg/__init__.py is 2*3*4 lines long\nC:\\*.txt has &lt; in it"
    async with answering(tmp_path, web={"token": "sesame"}) as (script, alice):
        script.say(words)
        link = await alice.ask(".terrarium explain", LINK)
        assert said(alice) == ["alice: one", f"two (6 more lines: .more) {link[1]}"]
        assert len(link[2]) == 24
        async with httpx2.AsyncClient(timeout=PATIENCE) as anybody:
            page = await anybody.get(link[1])
            text = await anybody.get(f"{link[1]}.txt")
            other = link[1][:-1] + ("a" if link[1][-1] != "a" else "b")
            for missing in (other, f"{link[1][:-1]}.txt"):
                assert (await anybody.get(missing)).status_code == 404
        assert page.status_code == 200
        assert "<pre><code>if x:\n    three()\n</code></pre>" in page.text
        assert "<script>alert" not in page.text
        assert "javascript:" not in re.sub(r"\[a\]\(javascript[^<]*", "", page.text)
        assert 'name="referrer" content="no-referrer"' in page.text
        assert f'href="/paste/{link[2]}.txt"' in page.text
        assert text.text == words
        assert text.headers["content-type"] == "text/plain; charset=utf-8"
        for shown in (page, text):
            assert shown.headers["x-robots-tag"] == "noindex"
            assert shown.headers["cache-control"] == "no-store"


async def test_a_link_needs_no_token_and_opens_nothing_else(tmp_path: Path) -> None:
    async with answering(tmp_path, web={"token": "sesame"}) as (script, alice):
        script.say(LONG)
        link = await alice.ask("explain in private", LINK, room="Terra")
        assert said(alice, "alice") == ["one", f"two (4 more lines: .more) {link[1]}"]
        async with httpx2.AsyncClient(timeout=PATIENCE) as anybody:
            assert (await anybody.get(link[1])).status_code == 200
            channels = link[1].partition("/paste/")[0] + "/api/channels"
            assert (await anybody.get(channels)).status_code == 401


# The people on a server on this machine may be anywhere: it may as well be a bouncer or a tunnel.
@pytest.mark.parametrize(("server", "web"), [("embedded", None), ("ngircd", {})])
async def test_no_link_is_claimed_while_nobody_could_open_it(
    server: str, web: dict[str, str] | None, tmp_path: Path
) -> None:
    async with answering(tmp_path, web, server) as (script, alice):
        for _ in range(2):
            script.say(LONG)
            await alice.ask(".terrarium explain", rf"PRIVMSG {ROOM} :\(3 more lines: \.more\)$")
            if web is None:
                StatusFile(tmp_path, "web").ready("http://192.0.2.1:8081")


async def test_the_public_address_is_where_links_lead(tmp_path: Path) -> None:
    web = {"public_url": "https://logs.example.org/irc/"}
    status = StatusFile(tmp_path, "web")
    async with scripted_room(tmp_path, "alice", server="ngircd", web=web) as (script, _, (alice,)):
        status.ready("http://0.0.0.0:8081")
        script.say(LONG)
        await alice.say(ROOM, ".terrarium explain")
        await alice.expect(r"more\) https://logs\.example\.org/irc/paste/[\w-]{24}$")
        status.report(ProcessState.STOPPED)
        script.say(LONG)
        await alice.ask(".terrarium explain", r"\(3 more lines: \.more\)$")


async def test_more_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with ngircd() as ircd, ScriptedOpenAI() as script:
        script.say("\n".join(f"line {number}" for number in range(8)))
        async with asking(tmp_path, script.url, ircd) as alice:
            await alice.ask(".terrarium count", r"\(5 more lines: \.more\)$")
        async with asking(tmp_path, script.url, ircd) as alice:
            await alice.ask(".more", r"\(2 more lines: \.more\)$")
            await alice.ask(".more", r"line 7$")
            await alice.ask(".more", r"alice: There is no more\.$")
        assert said(alice)[:4] == ["alice: line 3", "line 4", "line 5", "(2 more lines: .more)"]


async def test_more_goes_on_with_the_answer_to_whoever_says_it(tmp_path: Path) -> None:
    nicks, budget = ("alice", "bob", "carol"), {"line_budget": 3}
    async with scripted_room(tmp_path, *nicks, server="ngircd", irc=budget) as (script, _, people):
        alice, bob, carol = people
        for client, word in ((alice, "pump"), (bob, "frog")):
            script.say("\n".join(f"{word} {number}" for number in range(8)))
            await client.ask(f".terrarium count {word}s", rf"{word} 1$")
            await client.expect(r"\(6 more lines: \.more\)$")
        for client, first in ((alice, "pump 2"), (carol, "frog 2"), (bob, "frog 4")):
            await client.ask(".more", rf"PRIVMSG {ROOM} :\w+: {first}$")


async def test_more_keeps_the_lines_that_the_server_refuses(tmp_path: Path) -> None:
    options = {"server": "ngircd", "early": True}
    async with scripted_room(tmp_path, "alice", **options) as (script, _, (alice,)):
        script.say("\n".join(f"line {number}" for number in range(6)))
        await alice.ask(".terrarium count", r"\(3 more lines: \.more\)$")
        await alice.send(f"MODE {ROOM} +m")
        await alice.expect(rf"MODE {ROOM} :?\+m")
        await alice.ask(".more", r"NOTICE alice :.*I cannot answer there; the server says")
        await alice.send(f"MODE {ROOM} -m")
        await alice.ask(".more", r"line 5$")
    assert said(alice)[4:] == ["alice: line 3", "line 4", "line 5"]


async def test_no_line_begins_like_a_command_wherever_it_is_split(tmp_path: Path) -> None:
    async with scripted_room(tmp_path, "alice", server="ngircd") as (script, tendril, (alice,)):
        words = " ".join(["word"] * 200)
        full = len(tendril.networks["irc"].split(ROOM, words.replace(" ", ""))[0])
        # Each of exactly one line, whose end does not fit behind "alice: " or a blank.
        plain = words[: full - len("x !op bob")] + "x !op bob"
        escaped = "!a " + words[: full - len("!a x !op")] + "x !op"
        script.say(f"one\n{escaped}\n{plain}\nend")
        await alice.ask(".terrarium explain", r"\(2 more lines: \.more\)$")
        await alice.ask(".more", r":end$")
    found = [line[:4] for line in said(alice) if line.lstrip()[0] == "!"]
    assert found == [" !a ", " !op", " !op"]


async def test_a_long_answer_that_cannot_be_kept_is_begun_all_the_same(tmp_path: Path) -> None:
    async with answering(tmp_path, line_budget=2) as (script, alice):
        with closing(sqlite3.connect(tmp_path / "irc.db")) as file:
            file.execute(
                "CREATE TRIGGER full BEFORE INSERT ON pastes"
                " BEGIN SELECT RAISE(ABORT, 'there is no room'); END"
            )
        script.say("\n".join(f"line {number}" for number in range(6)))
        await alice.ask(".terrarium count", r"alice: line 0$")
        await alice.expect(r"\(5 more lines; not kept\)$")
        for number in range(4):
            await alice.say(ROOM, f"frog {number}")
        await alice.ask(".search frog", r"more lines?; not kept\)$")


async def test_an_answer_that_has_expired_is_gone(tmp_path: Path) -> None:
    async with answering(tmp_path, paste_hours=1e-9) as (script, alice):
        script.say(LONG).say(LONG)
        for _ in range(2):
            await alice.ask(".terrarium explain", r"\(3 more lines: \.more\)$")
        await alice.ask(".more", r"alice: There is no more\.$")
        async with Database.open(log_path(irc_config(tmp_path, 1, script.url))) as database:
            kept = await database.fetch_all("SELECT id FROM pastes")
            assert len(kept) == 1  # the next one takes it along
            assert await Pastes(database).get(kept[0]["id"]) is None


async def test_the_first_line_goes_out_while_the_model_still_writes(tmp_path: Path) -> None:
    async with answering(tmp_path, stream_after=0) as (script, alice):
        pieces = ("Ali", "ce: fi", "rst\nsec", "ond")
        script.answer(Answer("".join(pieces), pieces=pieces, hang=True))
        await alice.ask(".terrarium count", rf"PRIVMSG {ROOM} :alice: first$")
        assert said(alice) == ["alice: first"]
        script.release()
        await alice.expect(rf"PRIVMSG {ROOM} :second$")
        await alice.ask(".ping", "pong")
        assert said(alice) == ["alice: first", "second", "alice: pong"]
        script.say(f"This is **very {'word ' * 100}long** indeed.")
        await alice.ask(".terrarium explain", r"long indeed\.$")  # what is not complete waits
        assert sum(line.startswith("alice: This is very word") for line in said(alice)) == 1
        assert not any("**" in line for line in said(alice))


async def test_more_of_an_answer_still_written_is_not_that_of_an_older_one(tmp_path: Path) -> None:
    async with answering(tmp_path, web={}, stream_after=0) as (script, alice):
        script.say("\n".join(f"old {number}" for number in range(8)))
        await alice.ask(".terrarium count", LINK)
        text = "\n".join(f"This is the line of the new answer with number {n}." for n in range(8))
        script.answer(Answer(text, hang=True))
        await alice.ask(".terrarium count again", "with number 0")
        await alice.ask(".more", "NOTICE alice :.*still being written")
        script.release()
        await alice.expect(LINK)
        await alice.ask(".more", "alice: .* with number 2")


async def test_an_answer_that_is_written_quickly_is_said_at_once_as_a_whole(tmp_path: Path) -> None:
    async with answering(tmp_path, stream_after=600) as (script, alice):
        script.hang("first\nsecond")
        await alice.say(ROOM, ".terrarium count")
        await script.arrived(1)
        await alice.ask(".ping", "pong")
        script.release()
        await alice.expect(r"second$")
        assert said(alice) == ["alice: pong", "alice: first", "second"]


async def test_early_lines_count_and_words_before_a_tool_call_do_not(tmp_path: Path) -> None:
    async with answering(tmp_path, stream_after=0, line_budget=2) as (script, alice):
        script.answer(Answer("I look", calls=(("people", "{}"),)))
        script.say("There are two.\nBoth are fine.")
        await alice.ask(".terrarium how many are we?", r":Both are fine\.$")
        assert said(alice) == ["alice: There are two.", "Both are fine."]
        script.say("one\ntwo\nthree")
        await alice.ask(".terrarium count", r"\(2 more lines: \.more\)$")
        assert said(alice)[2:] == ["alice: one", "(2 more lines: .more)"]


async def test_what_a_job_delivers_may_have_more_lines_than_a_reply(tmp_path: Path) -> None:
    async with scripted_room(tmp_path, "alice", server="ngircd") as (_, tendril, (alice,)):
        for count, last in ((8, r"line 7$"), (13, r"\(2 more lines: \.more\)$")):
            text = "\n".join(f"line {number}" for number in range(count))
            assert await tendril.say(Place("irc", ROOM), text)
            await alice.expect(rf"PRIVMSG {ROOM} :{last}")
    assert said(alice)[:8] == [f"line {number}" for number in range(8)]
    assert len(said(alice)) == 8 + 12


UNIT = "\n".join(["```ini", "[Unit]", *(f"# {number}" for number in range(9)), "```"])


async def test_code_is_behind_a_link_and_its_first_sentences_come_at_once(tmp_path: Path) -> None:
    sentences = " ".join(f"Sentence number {number} of the explanation." for number in range(20))
    async with answering(tmp_path, web={}, stream_after=600, mark="🤖 ") as (script, alice):
        script.say(f"**This** is the unit file:\n\n{UNIT}\n\nGood luck.")
        link = await alice.ask(".terrarium a unit file", LINK)
        (line,) = said(alice)
        assert line == f"alice: 🤖 This is the unit file: (11 more lines: .more) {link[1]}"
        script.say(UNIT)
        link = await alice.ask(".terrarium only the file", LINK)
        assert said(alice)[1] == f"alice: 🤖 (10 more lines: .more) {link[1]}"
        async with httpx2.AsyncClient(timeout=PATIENCE) as anybody:
            page = await anybody.get(link[1])
        assert "<pre><code>[Unit]\n# 0\n" in page.text
        script.say(f"{UNIT}\nThe *Nice* line is gone.\n\nThe rest stays.")
        link = await alice.ask(".terrarium make it 4G", LINK)
        assert said(alice)[2] == (
            f"alice: 🤖 The *Nice* line is gone. (12 more lines: .more) {link[1]}"
        )
        script.say("\n".join([sentences] * 3))
        await alice.ask(".terrarium explain", LINK)
        first, hint = said(alice)[3:]
        assert first.startswith("alice: 🤖 Sentence number 0 ")
        assert first.endswith("of the explanation.")
        assert hint.startswith("(")
        number = int(first.split()[-4]) + 1
        await alice.ask(".more", rf"PRIVMSG {ROOM} :alice: Sentence number {number} of ")


async def test_markdown_is_shown_as_text_and_few_lines_of_code_as_they_are(tmp_path: Path) -> None:
    async with answering(tmp_path, web={}, line_budget=6) as (script, alice):
        script.say(
            "@alice: alice: In short\n## More\n**memory.high** is `4G`: [it](https://a.example)."
            "\n---\n```sh\nexport A=**B**  # [x](https://y.example)\n```\n*Good* luck, 2 ** 3 **"
        )
        await alice.ask(".terrarium explain", "Good")
    assert said(alice) == [
        "alice: In short",
        "More",
        "memory.high is `4G`: it (https://a.example).",
        "export A=**B**  # [x](https://y.example)",
        "*Good* luck, 2 ** 3 **",
    ]
