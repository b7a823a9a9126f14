"""Titles of pages on a real channel: where an admin wants them, and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.kit.clock import ManualClock
from tests.kit.irc_client import irc_client
from tests.kit.irc_scene import NOBODY
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import embedded_ircd
from tests.kit.page_server import page, page_server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def test_titles_are_told_where_they_are_on_and_of_public_lines_only(tmp_path: Path) -> None:
    async with (
        page_server() as site,
        embedded_ircd() as ircd,
        irc_client(ircd.port, "alice") as alice,
    ):
        for host in ("one", "two", "three", "four"):
            site.answers[f"{host}.example/"] = page(
                f"<html><head><title lang=en>\n.quit {host} &amp;\n more</title>"
            )
        config = irc_config(
            tmp_path, ircd.port, NOBODY, irc={"admins": ["alice!*@*"], "channels": [ROOM]}
        )
        await alice.join(ROOM)
        async with irc_tendril(config, None, site.fetcher()):
            await alice.say(ROOM, "not yet: http://one.example/")
            await alice.ask(".set titles on", r"NOTICE alice :.*titles")
            await alice.say("Terra", "in private: http://two.example/")
            await alice.say(ROOM, "[nolog] hush: http://three.example/")
            await alice.say(ROOM, "look (http://four.example/), and again http://four.example/")
            told = await alice.expect(rf":Terra!\S+ PRIVMSG {ROOM} :(.*example.*)$")
            assert told[1] == "“.quit four & more” (four.example)"
            await alice.say(ROOM, "http://four.example/ once more")
            await alice.ask(".set titles off", r"NOTICE alice :.*titles")
            await alice.say(ROOM, "http://one.example/")
            await alice.ask(".ping", "pong")
        assert site.requests == ["four.example/robots.txt", "four.example/"]
        assert ("PRIVMSG", "Terra", told[1]) in await logged(config)


async def test_a_flood_of_links_is_not_a_flood_of_titles(tmp_path: Path) -> None:
    async with (
        page_server() as site,
        embedded_ircd() as ircd,
        irc_client(ircd.port, "alice") as alice,
    ):
        for number in range(10):
            site.answers[f"a.example/{number}"] = page("<title>again</title>")
        irc = {"channel": {ROOM: {"titles": True}}}
        await alice.join(ROOM)
        async with irc_tendril(
            irc_config(tmp_path, ircd.port, NOBODY, irc=irc), ManualClock(NOON), site.fetcher()
        ):
            for number in range(10):
                await alice.say(ROOM, f"http://a.example/{number}")
            await alice.expect(rf"PRIVMSG {ROOM} :“again” \(a.example\)")
            await alice.ask(".ping", "pong")
        assert len([each for each in site.requests if "robots" not in each]) == 1
