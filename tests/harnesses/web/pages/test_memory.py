"""The page of memories: who sees, corrects, exports and forgets what is remembered of whom."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from llm.memory.consolidation import MAX_SUMMARY_LENGTH
from storage.db.database import Database
from storage.memory.conversations import Conversations, Turn
from storage.memory.memories import HEARSAY, Memories, Memory, MemoryKind
from tests.harnesses.web.pages.test_jobs import log_in
from tests.kit.browser import visit
from tests.kit.web_site import bearer, event, web_site

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SETTINGS = {
    "token": "all-of-it",
    "accounts": {
        "ada": {"token": "adas-own", "identities": ["irc/Ada"]},
        "eve": {"token": "eves-own", "identities": ["irc/ada/tea%"]},
        "bob": {"token": "bobs-own", "identities": ["irc/bob"], "channels": []},
    },
}
POND = "irc/#pond"


def fact(room: str, subject: str, text: str, source: str = "", turn: int = 0) -> Memory:
    return Memory(
        layer=MemoryKind.FACT,
        room=room,
        text=text,
        time=NOON,
        subject=subject,
        key="tea",
        source=source or subject,
        confidence=HEARSAY,
        first_turn=turn,
        last_turn=turn,
    )


async def fill(data: Path) -> None:
    """Store memories of two accounts and of a nick, on a channel and in private."""
    async with Database.open(data / "irc.db") as database:
        asked = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
        turn = await Conversations(database).add(f"{POND}/~ada", Turn(1, NOON, tuple(asked)), POND)
        episode = partial(Memory, layer=MemoryKind.EPISODE, time=NOON)
        for memory in (
            fact(POND, "~ada", "oolong", "~bob", turn),
            fact("irc/~ada", "~ada", "a secret tea"),
            fact("irc/~bob", "~bob", "darjeeling"),
            fact(POND, "ada!x@elsewhere", "tea of another ada"),
            episode(room=POND, text="They spoke of newts."),
            episode(room="irc/~bob", text="Bob cried."),
            # In the names of rooms, slashes and per cent signs of accounts are escaped.
            episode(room="irc/~ada/tea%", text="Ada spoke of tea."),
            episode(room="irc/~ada%2Ftea%25", text="Eve sang."),
        ):
            await Memories(database).add(memory)


async def texts(data: Path) -> list[str]:
    async with Database.open(data / "irc.db") as database:
        return [row["text"] for row in await database.fetch_all("SELECT text FROM memories")]


async def test_everybody_sees_their_own_and_operators_those_of_channels(tmp_path: Path) -> None:
    await fill(tmp_path)
    seen = {
        "adas-own": {"oolong", "a secret tea", "Ada spoke of tea."},
        "eves-own": {"Eve sang."},
        "bobs-own": {"darjeeling", "Bob cried."},
        "all-of-it": {"oolong", "tea of another ada", "They spoke of newts."},
    }
    everything = set[str]().union(*seen.values())
    events = [event("ada likes oolong", channel="#pond")]
    async with web_site(tmp_path, events=events, settings=SETTINGS) as site:
        async with Database.open(tmp_path / "irc.db") as database:
            await database.execute("UPDATE turns SET anchor = ?", [site.ids[0]])
        for token, expected in seen.items():
            exported = await site.http.get("/memory.json", headers=bearer(token))
            shown = [
                await site.page(path, token)
                for path in ("/memory?room=irc/%23pond", "/memory?room=irc,+in+private")
            ]
            assert {each for each in everything if f">{each}<" in "".join(shown)} == expected, token
            assert {each["text"] for each in exported.json()} == expected
            assert "elsewhere" not in "".join((*shown, exported.text))
        for path in ("/memory", "/memory.json"):
            assert (await site.http.get(path, headers=bearer("wrong"))).status_code == 401
        headers = bearer("adas-own")
        exported = await site.http.get("/memory.json", headers=headers)
        owned = {each["text"]: each for each in exported.json()}
        assert owned["oolong"]["line"] == f"/line/{site.ids[0]}"
        assert owned["oolong"]["source"] == "bob"
        # Numbers are easily guessed: the rights are checked when something is changed.
        everyones = {"store": "irc", "number": ["3", "4", "5", "6"], "text": "gone"}
        for action, numbers in product(("forget", "correct"), (everyones["number"], ["9" * 30])):
            form = everyones | {"action": action, "number": numbers}
            answer = await site.http.post("/memory", data=form, headers=headers)
            assert answer.status_code == 404
        assert set(await texts(tmp_path)) == everything


async def test_a_person_corrects_forgets_and_lets_it_follow(
    chromium: Browser, tmp_path: Path
) -> None:
    await fill(tmp_path)
    async with web_site(tmp_path, settings=SETTINGS) as site:
        page = await visit(chromium, f"{site.url}/memory")
        await log_in(page, site, "adas-own")
        await page.goto(f"{site.url}/memory")
        oolong = page.get_by_role("listitem").filter(has_text="oolong")
        await oolong.get_by_text("Correct or forget").click()
        await oolong.get_by_role("textbox").fill("sencha")
        await oolong.get_by_role("button", name="Correct").click()
        await expect(page.get_by_role("status")).to_have_text("Corrected.")
        sencha = page.get_by_role("listitem").filter(has_text="sencha")
        await expect(sencha).to_contain_text("asked for, 100 % sure")
        async with Database.open(tmp_path / "irc.db") as database:
            memories = Memories(database)
            garden = await memories.load_for_prompt("irc/#garden", "~ada", "tea", 5)
            assert not garden.facts
            await page.get_by_role("button", name="Let them follow me everywhere on irc").click()
            await expect(page.get_by_role("status")).to_be_visible()
            garden = await memories.load_for_prompt("irc/#garden", "~ada", "tea", 5)
            assert [each.text for each in garden.facts] == ["sencha"]  # what she asked for herself
            for room, person in (("irc/#garden", "~bob"), ("xmpp/#garden", "~ada")):
                other = await memories.load_for_prompt(room, person, "tea", 5)
                assert not other.facts
        secret = page.get_by_role("listitem").filter(has_text="a secret tea")
        await secret.get_by_text("Correct or forget").click()
        await secret.get_by_role("button", name="Forget").click()
        await expect(page.get_by_role("status")).to_have_text("Forgotten.")
        assert "a secret tea" not in await texts(tmp_path)


async def test_a_long_summary_of_any_channel_is_corrected_in_any_script(tmp_path: Path) -> None:
    room = "irc/#wow!"
    summary = Memory(layer=MemoryKind.SUMMARY, room=room, text="Frogs are awake.", time=NOON)
    form = {"store": "irc", "action": "correct", "number": "1", "text": "蛙" * MAX_SUMMARY_LENGTH}
    async with web_site(tmp_path, settings=SETTINGS) as site:
        async with Database.open(tmp_path / "irc.db") as database:
            await Memories(database).add(summary)
        headers = bearer("all-of-it")
        answer = await site.http.post("/memory", data=form, headers=headers)
        assert answer.headers.get("location") == "/memory?done=corrected"
        (exported,) = (await site.http.get("/memory.json", headers=headers)).json()
        assert exported["room"] == room
    assert await texts(tmp_path) == [form["text"]]
