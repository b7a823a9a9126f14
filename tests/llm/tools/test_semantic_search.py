"""Search by meaning, with the real embedding model behind the real agent server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llm.client.client import AgentClient
from llm.client.settings import AgentSettings
from llm.tools.log_search import LogSearch, LogTools
from llm.tools.semantic_search import SemanticIndex
from llm.tools.toolbox import ResultLength
from storage.chat_log.event import PUBLIC, Event, EventType, Identity, Place, Scope
from storage.chat_log.opt_outs import OptOuts
from storage.chat_log.query import Query
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.log import ChatLog
from storage.search.vectors import VectorIndex
from tests.harnesses.irc.commands.test_registry import alice_in, ask
from tests.kit.agent_server import agent_server
from tests.kit.irc_tendril import ROOM
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.web_site import web_site

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
TALK = [
    "my wireless card is not detected after the upgrade",
    "the soup needs more salt and a little pepper",
    "try pressing both mouse buttons at the same time",
    "the meeting is on Thursday at four o'clock",
]
pytest_plugins = ("tests.kit.embedder",)


def said(text: str, minute: int = 0, channel: str = "#frogs") -> Event:
    return Event(
        network="irc",
        channel=channel,
        type=EventType.PRIVMSG,
        time=NOON + timedelta(minutes=minute),
        nick="ada",
        text=text,
    )


@asynccontextmanager
async def filled(
    path: Path, events: Sequence[Event]
) -> AsyncIterator[tuple[Database, ChatLog, list[int]]]:
    async with Database.open(path / "irc.db") as database, ChatLog.open(database) as log:
        ids = await asyncio.gather(*(log.append(event) for event in events))
        yield database, log, list(ids)


def query(scope: Scope = PUBLIC, limit: int = 1) -> Query:
    return Query(scope=scope, limit=limit)


@pytest.mark.slow
@pytest.mark.process
async def test_a_question_in_other_words_finds_its_line(tmp_path: Path, embedder: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "cache_dir": str(embedder)}) as url,
        AgentClient.open(AgentSettings(api_url=url)) as client,
        filled(tmp_path, [said(text, number) for number, text in enumerate(TALK)]) as (db, _, _),
    ):
        semantic_index = SemanticIndex(client, db)
        assert await semantic_index.index_pass() > 0
        assert await semantic_index.index_pass() == 0
        for question, number in (
            ("Wi-Fi adapter does not work", 0),
            ("when do we come together?", 3),
        ):
            page = await semantic_index.search(question, query())
            assert [hit.event.text for hit in page.hits] == [TALK[number]]
            assert page.searched_back_to is None


async def test_only_what_may_be_seen_is_compared(tmp_path: Path) -> None:
    events = [said("the secret of the other place", 0, "#other"), said("a line of this place", 1)]
    async with filled(tmp_path, events) as (database, _, ids):
        vectors = VectorIndex(database)
        await vectors.use_model("m")
        await vectors.add({ids[0]: [1, 0, 0], ids[1]: [0, 1, 0]})
        here = query(Scope.from_places(Place("irc", "#frogs")), limit=5)
        found = await vectors.nearest([1, 0, 0], here)
        assert [hit.event.text for hit in found.hits] == ["a line of this place"]
        assert len((await vectors.nearest([1, 0, 0], query(limit=5))).hits) == 2
        nothing = await vectors.nearest([1, 0, 0], query(Scope.from_places(), limit=5))
        assert nothing.hits == ()


async def test_while_lines_have_no_vector_yet_the_answer_says_how_far_it_looked(
    tmp_path: Path,
) -> None:
    events = [said(f"a line of some length {number}", number) for number in range(4)]
    async with filled(tmp_path, events) as (database, _, ids):
        vectors = VectorIndex(database)
        await vectors.use_model("m")
        assert [number for number, _ in await vectors.missing(0, 1 << 62, 2)] == [ids[3], ids[2]]
        await vectors.add({ids[3]: [3, 4], ids[2]: [1, 0]})
        page = await vectors.nearest([0.6, 0.8], query(limit=9))
        assert [hit.event.id for hit in page.hits] == [ids[3], ids[2]]
        assert page.searched_back_to == NOON + timedelta(minutes=2)
        await vectors.add({ids[1]: [1, 0], ids[0]: [1, 0]})
        await vectors.mark_backfill_complete()
        assert (await vectors.nearest([1, 0], query())).searched_back_to is None
        await vectors.use_model("another")
        assert (await vectors.nearest([1, 0], query())).hits == ()


async def test_a_vector_goes_with_its_event(tmp_path: Path) -> None:
    async with filled(tmp_path, [said("a line of some length")]) as (database, log, ids):
        vectors = VectorIndex(database)
        await vectors.use_model("m")
        await vectors.add({ids[0]: [1, 0], ids[0] + 9: [0, 1]})
        await log.remove(ids)
        row = await database.fetch_one("SELECT count(*) FROM vectors")
        assert row is not None
        assert row[0] == 0


async def test_without_any_vector_the_search_says_how_to_get_them(tmp_path: Path) -> None:
    async with (
        filled(tmp_path, []) as (database, _, _),
        AgentClient.open(AgentSettings(api_url="http://127.0.0.1:9")) as client,
    ):
        with pytest.raises(Unavailable, match="STORAGE_SEMANTIC=true"):
            await SemanticIndex(client, database).search("anything", query())


async def test_the_site_and_the_bot_offer_what_is_near_in_meaning(
    tmp_path: Path, embedder: Path
) -> None:
    events = [said(text, number) for number, text in enumerate(TALK)]
    semantic = {"storage": {"semantic": True}}
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "cache_dir": str(embedder)}) as url,
    ):
        async with alice_in(tmp_path, url, **semantic) as (alice, tendril):
            await asyncio.gather(*(tendril.services.log.append(event) for event in events))
            await alice.say(ROOM, "we cook dinner in the big kitchen tonight")
            await ask(alice, ".ping")
            await tendril.services.log.flush()
            assert tendril.services.semantic_index is not None
            await tendril.services.semantic_index.index_pass()
            answer = await ask(alice, ".search preparing a meal")
            assert answer == "Nobody wrote that; near in meaning:"
            line = await alice.expect(rf":Terra!\S+ PRIVMSG {ROOM} :(.*)$")
            assert "we cook dinner in the big kitchen tonight" in line[1]
        async with web_site(tmp_path, agent_url=url, tables=semantic) as site:
            found = await site.get("/api/search", q="Wi-Fi adapter is broken", mode="semantic")
            assert found["results"][0]["text"] == TALK[0]
            page = await site.http.get("/search", params={"q": "Wi-Fi adapter", "mode": "meaning"})
            assert page.status_code == 200
            assert "wireless card" in page.text
            offered = await site.http.get("/search", params={"q": "zzz nothing like it"})
            assert "mode=meaning" in offered.text


async def test_a_site_without_the_index_says_what_is_missing(tmp_path: Path) -> None:
    async with web_site(tmp_path) as site:
        answer = await site.http.get("/api/search", params={"q": "x", "mode": "semantic"})
    assert answer.status_code == 422
    assert "STORAGE_SEMANTIC=true" in answer.json()["error"]["message"]


async def test_the_tool_shows_the_model_no_line_of_who_has_opted_out(tmp_path: Path) -> None:
    async with (
        filled(tmp_path, [said("my secret is a green frog")]) as (database, log, _),
        AgentClient.open(AgentSettings(api_url="http://127.0.0.1:9")) as client,
    ):
        tools = LogTools(log=log, scope=PUBLIC, semantic_index=SemanticIndex(client, database))
        asked, most = LogSearch(query="frog"), ResultLength(1_000)
        assert "green frog" in await tools.search_log(asked, most)
        await OptOuts(database).add("irc", Identity("ada"))
        assert await tools.search_log(asked, most) == "no line has frog"
