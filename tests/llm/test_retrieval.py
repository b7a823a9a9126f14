"""Lines that answer a question, by their words and by their meaning; the embedding model behind the
agent server is the real one where it matters what a text means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llm.client.client import AgentClient, RequestOptions
from llm.client.settings import AgentSettings
from llm.log_questions import LogAnswers, LogQuestion
from llm.messages.errors import Unreachable
from llm.retrieval import LineEmbedding, Retrieval
from llm.tools.log_search import LogSearch, LogTools
from llm.tools.toolbox import ResultLength
from storage.chat_log import deletion
from storage.chat_log.event import PUBLIC, Event, Identity, Scope
from storage.chat_log.event_table import Query
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import ChatLog
from storage.search.vectors import DIMENSIONS
from tests.kit.agent_server import agent_server
from tests.kit.irc_scene import alice_in
from tests.kit.irc_tendril import ROOM
from tests.kit.lines import LAKE, POND, said
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.web_site import web_site

TALK = [
    "my wireless card is not detected after the upgrade",
    "the soup needs more salt and a little pepper",
    "try pressing both mouse buttons at the same time",
    "the meeting is on Thursday at four o'clock",
]
pytest_plugins = ("tests.kit.embedder",)


@asynccontextmanager
async def filled(
    path: Path, events: Sequence[Event]
) -> AsyncIterator[tuple[Database, ChatLog, list[int]]]:
    async with Database.open(path / "irc.db") as database, ChatLog.open(database) as log:
        ids = await asyncio.gather(*(log.append(event) for event in events))
        yield database, log, list(ids)


def query(scope: Scope = PUBLIC, limit: int = 1) -> Query:
    return Query(scope=scope, limit=limit)


class Embedder:
    """Embeds texts by the first of the given words that they have; `asked` are all texts."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.asked: list[str] = []

    async def embed(
        self,
        texts: Sequence[str],
        options: RequestOptions,
        *,
        model: str,
        query: bool = False,
    ) -> list[list[float]]:
        self.asked += texts
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        place = next((n for n, word in enumerate(self._words) if word in text), len(self._words))
        return [10.0 * (each == place) for each in range(DIMENSIONS)]


class NoEmbedder(Embedder):
    """An agent server that is away."""

    async def embed(
        self,
        texts: Sequence[str],
        options: RequestOptions,
        *,
        model: str,
        query: bool = False,
    ) -> list[list[float]]:
        raise Unreachable("away")


async def stored(database: Database) -> int:
    row = await database.fetch_one("SELECT count(*) FROM vectors")
    assert row is not None
    return int(row[0])


@pytest.mark.slow
@pytest.mark.process
async def test_a_question_in_other_words_finds_its_line(tmp_path: Path, embedder: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "cache_dir": str(embedder)}) as url,
        AgentClient.open(AgentSettings(api_url=url)) as client,
        filled(tmp_path, [said(text, number) for number, text in enumerate(TALK)]) as (db, log, _),
    ):
        embedding, retrieval = LineEmbedding(db, client), Retrieval(log, client)
        assert await embedding.embed_missing() > 0
        assert await embedding.embed_missing() == 0
        for question, number in (
            ("why does my Wi-Fi adapter not work?", 0),
            ("when do we come together?", 3),
        ):
            found = await retrieval.find(question, query())
            assert [each.event.text for each in found.passages] == [TALK[number]]
            page = await retrieval.near(question, query())
            assert page is not None
            assert [hit.event.text for hit in page.hits] == [TALK[number]]
        for text, topic, found_text in (
            ("who said that their Wi-Fi adapter is broken?", "Wi-Fi adapter broken", TALK[0]),
            ("who said that the giraffe is green?", "giraffe green", "Nobody said that here."),
        ):
            said_so = await LogAnswers(retrieval, query()).answer(text, LogQuestion(topic))
            assert said_so
            assert found_text in said_so.text


async def test_only_what_may_be_seen_is_near(tmp_path: Path) -> None:
    events = [said("the frog of the other place", place=LAKE), said("a toad of this place", 1)]
    embedder = Embedder("frog", "toad")
    async with filled(tmp_path, events) as (database, log, _):
        await LineEmbedding(database, embedder).embed_missing()
        retrieval, here = Retrieval(log, embedder), Scope.from_places(POND)
        for scope, texts in (
            (here, ["a toad of this place"]),
            (PUBLIC, ["the frog of the other place", "a toad of this place"]),
            (Scope.from_places(), []),
        ):
            page = await retrieval.near("frog", query(scope, limit=5))
            assert page is not None
            # Next to the frog, the toad is far.
            assert [hit.event.text for hit in page.hits] == texts[:1]
            found = await retrieval.find("where is the frog?", query(scope, limit=5))
            assert {each.event.text for each in found.passages} <= set(texts)


async def test_the_newest_lines_of_a_channel_get_vectors(tmp_path: Path) -> None:
    events = [said(f"a line of some length {number}", number) for number in range(1_010)]
    embedder = Embedder()
    async with filled(tmp_path, [*events, said("short", 2_000)]) as (database, _, ids):
        newest = await LineEmbedding(database, embedder).embed_missing()
        assert newest == ids[-1]
        assert await stored(database) == 1_000
        assert embedder.asked[:2] == ["short", "a line of some length 1009"]


async def test_a_line_is_embedded_after_the_one_before_it_and_goes_with_either(
    tmp_path: Path,
) -> None:
    asked, answer = "who has the key of the shed?", "gordon has it"
    events = [said(asked), said(answer, 1), said("yes", 2), said("an hour later", 63)]
    embedder = Embedder()
    async with filled(tmp_path, events) as (database, log, ids):
        await LineEmbedding(database, embedder).embed_missing()
        # By itself a short line means nothing.
        in_talk = [f"ada: {asked} / ada: {answer}", f"ada: {answer} / ada: yes"]
        assert sorted(embedder.asked) == sorted([asked, answer, "an hour later", *in_talk])
        # What the first line says is also in the second one's vector.
        await deletion.remove(log.database, ids[:1])
        assert await stored(database) == 2
        await LineEmbedding(database, embedder).embed_missing()
        assert await stored(database) == 3
        assert embedder.asked[-1] == "gordon has it"


async def test_who_has_opted_out_has_no_vectors_and_is_in_none_of_others(tmp_path: Path) -> None:
    events = [said("a line of some length"), said("a reply to that", 1, nick="bob")]
    embedder = Embedder()
    async with filled(tmp_path, events) as (database, _, _):
        embedding, opt_outs = LineEmbedding(database, embedder), OptOuts(database)
        await embedding.embed_missing()
        await opt_outs.add("irc", Identity("ada"))
        assert await stored(database) == 0
        embedder.asked.clear()
        await embedding.embed_missing()
        assert embedder.asked == ["a reply to that"]
        assert await stored(database) == 1
        await opt_outs.remove("irc", Identity("ada"))
        await embedding.embed_missing()
        assert await stored(database) == 2


async def test_an_old_line_is_compared_when_it_is_asked_for(tmp_path: Path) -> None:
    events = [
        said("the axolotl sleeps under a stone of the pond", 0),
        said("the axolotl of the neighbours is pink", 1),
    ]
    embedder = Embedder("sleep")
    async with filled(tmp_path, events) as (_, log, _):
        found = await Retrieval(log, embedder).find("where sleeps the axolotl?", query())
        assert [each.event.text for each in found.passages] == [events[0].text]
        assert events[0].text in embedder.asked


async def test_while_the_embedder_is_away_words_alone_decide(tmp_path: Path) -> None:
    events = [said("the greenhouse pump starts at six")]
    async with filled(tmp_path, events) as (_, log, _):
        retrieval = Retrieval(log, NoEmbedder())
        found = await retrieval.find("when does the greenhouse pump start?", query())
        assert found.is_sure
        assert await retrieval.near("pump", query()) is None


async def test_a_question_is_never_the_answer_but_the_reply_to_it_is(tmp_path: Path) -> None:
    events = [
        said("has anyone seen the keys of the boathouse?", 0),
        said("they're in my drawer", 1, nick="frank"),
        said("nice weather today", 2, nick="eve"),
    ]
    async with filled(tmp_path, events) as (_, log, _):
        found = await Retrieval(log).find("where are the keys of the boathouse?", query(limit=3))
        assert found.passages[0].event.text == "they're in my drawer"
        assert all("?" not in each.event.text for each in found.passages)


async def test_only_a_plain_question_has_answers_in_a_search(tmp_path: Path) -> None:
    async with filled(tmp_path, [said("the greenhouse pump starts at six")]) as (_, log, _):
        retrieval = Retrieval(log)
        question = "when does the greenhouse pump start?"
        assert (await retrieval.answers(question, query())).is_sure
        for text in ("greenhouse pump", f"{question} from:bob", "is it a pump or a greenhouse?"):
            assert not (await retrieval.answers(text, query())).passages


async def test_the_site_and_the_bot_offer_what_is_near_in_meaning(
    tmp_path: Path, embedder: Path
) -> None:
    events = [said(text, number) for number, text in enumerate(TALK)]
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "cache_dir": str(embedder)}) as url,
    ):
        async with alice_in(tmp_path, url) as (alice, tendril):
            await asyncio.gather(*(tendril.services.log.append(event) for event in events))
            await alice.say(ROOM, "we cook dinner in the big kitchen tonight")
            await alice.reply_to(".ping")
            await tendril.services.log.flush()
            assert tendril.log.line_embedding is not None
            await tendril.log.line_embedding.embed_missing()
            answer = await alice.reply_to(".search preparing a meal")
            assert answer == "Nobody wrote that; near in meaning:"
            line = await alice.expect(rf":Terra!\S+ PRIVMSG {ROOM} :(.*)$")
            assert "we cook dinner in the big kitchen tonight" in line[1]
        async with web_site(tmp_path, agent_url=url) as site:
            found = await site.get("/api/search", q="Wi-Fi adapter is broken", mode="semantic")
            assert found["results"][0]["text"] == TALK[0]
            page = await site.http.get("/search", params={"q": "Wi-Fi adapter", "mode": "meaning"})
            assert page.status_code == 200
            assert "wireless card" in page.text
            offered = await site.http.get("/search", params={"q": "zzz nothing like it"})
            assert "mode=meaning" in offered.text


async def test_a_site_without_the_index_says_what_is_missing(tmp_path: Path) -> None:
    async with web_site(tmp_path, tables={"storage": {"semantic": False}}) as site:
        answer = await site.http.get("/api/search", params={"q": "x", "mode": "semantic"})
    assert answer.status_code == 422
    assert "STORAGE_SEMANTIC=true" in answer.json()["error"]["message"]


async def test_the_tool_shows_the_model_no_line_of_who_has_opted_out(tmp_path: Path) -> None:
    async with filled(tmp_path, [said("my secret is a green frog")]) as (database, log, _):
        retrieval = Retrieval(log, NoEmbedder())
        tools = LogTools(log=log, scope=PUBLIC, retrieval=retrieval)
        asked, most = LogSearch(query="frog"), ResultLength(1_000)
        assert "green frog" in await tools.search_log(asked, most)
        await OptOuts(database).add("irc", Identity("ada"))
        assert await tools.search_log(asked, most) == "no line has frog"


async def test_an_answer_is_found_by_the_question_before_it(tmp_path: Path, embedder: Path) -> None:
    talk = [
        ("mo", "the soup was too salty again"),
        ("holly", "who has the container key, i could not get in at lunch"),
        ("holly", "had to leave the bikes in the hallway"),
        ("magsy", "gordon has it"),
        ("magsy", "he is back thursday i think"),
        ("ulf", "it rains all day here"),
        ("mo", "see you at seven then"),
    ]
    events = [said(text, minute, nick=nick) for minute, (nick, text) in enumerate(talk)]
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "cache_dir": str(embedder)}) as url,
        AgentClient.open(AgentSettings(api_url=url)) as client,
        filled(tmp_path, events) as (database, log, _),
    ):
        await LineEmbedding(database, client).embed_missing()
        answers = LogAnswers(Retrieval(log, client), Query(scope=PUBLIC, limit=5))
        answer = await answers.answer("where is the key of the container?", None)
    assert answer
    assert "<holly> who has the container key" in answer.text
    assert "<magsy> gordon has it" in answer.text
    first, _, second = answer.text.partition("\n")
    assert "gordon" in first
    assert "<mo> see you at seven then" in second, "what else may be the answer"
    assert answer.ids_in(f"{first} more") == {event.id for event in answer.quotes[0]}
    assert answer.ids_in(answer.text) == {event.id for event in answer.shown}
