"""Questions are read by the real embedding model and the shipped weights."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from agent_server.engines.embeddings import EmbeddingEngine
from benchmarks.reading_fit import LANGUAGES, SENTENCES, sentences
from llm.client.client import AgentClient, Reader, RequestOptions
from llm.client.settings import AgentSettings
from llm.reading.reading import Surroundings, classifier, shorten
from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI

pytest_plugins = ("tests.kit.embedder",)

HERE = Surroundings(datetime(2026, 11, 23, tzinfo=UTC), UTC)
OPTIONS = RequestOptions("irc/#frogs/ada")
LEAST_RIGHT = 0.8  # of the seen sentences; those of the other half are counted by a benchmark


async def test_the_kinds_of_the_data_are_those_that_its_readme_describes() -> None:
    described = (SENTENCES / "README.md").read_text(encoding="utf-8")
    kinds = {kind for half in ("seen", "unseen") for name in LANGUAGES
             for kind, _ in sentences(half, name)}  # fmt: skip
    assert kinds == set(classifier().kinds)
    assert [kind for kind in kinds if f"- `{kind}`" not in described] == []


async def test_no_unseen_sentence_is_learnt() -> None:
    for name in LANGUAGES:
        seen = {text.casefold() for _, text in sentences("seen", name)}
        assert [text for _, text in sentences("unseen", name) if text.casefold() in seen] == []


async def test_seen_sentences_are_read_as_what_they_are(embedder: Path) -> None:
    labelled = [pair for name in LANGUAGES for pair in sentences("seen", name)][::200]
    engine = EmbeddingEngine(embedder)
    async with engine.lifespan():
        asked = {"input": [shorten(text) for _, text in labelled], "input_type": "query"}
        made = await engine.embeddings({**asked, "encoding_format": "float"})
    head, right = classifier(), 0
    for (kind, text), each in zip(labelled, made["data"], strict=True):
        kinds = head.features(shorten(text), each["embedding"]).probabilities(head.kinds)
        right += max(kinds, key=kinds.__getitem__) == kind
    assert right / len(labelled) > LEAST_RIGHT


async def test_a_question_is_read_by_the_server_in_any_language(embedder: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "cache_dir": str(embedder)}) as url,
        AgentClient.open(AgentSettings(api_url=url)) as client,
    ):
        reader = Reader(client)
        english = await reader.read("what is the capital of Portugal?", OPTIONS, HERE)
        assert (english.kind, english.is_foreign) == ("general", False)
        polish = await reader.read("kto namalował ten słynny obraz w Luwrze?", OPTIONS, HERE)
        assert (polish.kind, polish.is_foreign) == ("general", True)
        for strange in ("", " ", "\0", "\ud800", "\u202e" * 9_000, "🙂" * 9_000):
            assert 0 <= (await reader.read(strange, OPTIONS, HERE)).certainty <= 1
        assert script.requests == []


async def test_without_the_embedding_model_a_question_stays_unread() -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url}) as url,
        AgentClient.open(AgentSettings(api_url=url)) as client,
    ):
        read = await Reader(client).read("who has the ladder?", OPTIONS, HERE)
    assert (read.kind, read.certainty, read.is_foreign) == ("", 0.0, False)
    assert script.requests == [], "people's words go to no upstream for this"
    async with AgentClient.open(AgentSettings(api_url="http://127.0.0.1:9")) as client:
        assert (await Reader(client).read("who?", OPTIONS, HERE)).kind == ""


def test_of_a_long_text_both_ends_are_read() -> None:
    text = "please " + "x" * 5_000 + " thanks"
    assert shorten(text).startswith("please x")
    assert shorten(text).endswith(" thanks")
    assert len(shorten(text)) < 250
