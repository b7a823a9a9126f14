"""POST /v1/embeddings, with the official SDK as the client and the real embedding model."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import os
import select
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, NotFoundError

from agent_server.engines.embeddings import BATCH_TEXTS, EmbeddingEngine
from agent_server.errors import EngineUnavailable
from tests.kit.agent_server import agent_client
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE

pytest_plugins = ("tests.kit.embedder",)

pytestmark = pytest.mark.asyncio(loop_scope="module")

E5 = "multilingual-e5-small"


def likeness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def script() -> AsyncIterator[ScriptedOpenAI]:
    """The upstream of `http`."""
    async with ScriptedOpenAI() as upstream:
        yield upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(script: ScriptedOpenAI, embedder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an agent server with the embedding model, which all tests share."""
    model = {"upstream": script.url, "cache_dir": str(embedder)}
    async with agent_client(model) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def openai(http: httpx2.AsyncClient) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client of the same server."""
    async with AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_a_text_is_a_vector_of_length_one_and_is_counted(openai: AsyncOpenAI) -> None:
    answer = await openai.embeddings.create(model=E5, input="The bot is away.", user="ada")
    (made,) = answer.data
    assert (answer.object, answer.model, made.object, made.index) == ("list", E5, "embedding", 0)
    assert len(made.embedding) == 384
    assert abs(likeness(made.embedding, made.embedding) - 1) < 1e-3
    assert 5 < answer.usage.prompt_tokens < 20
    assert answer.usage.total_tokens == answer.usage.prompt_tokens


async def test_floats_and_base64_say_the_same(http: httpx2.AsyncClient) -> None:
    body = {"model": E5, "input": "hello", "dimensions": 384}
    plain = (await http.post("/v1/embeddings", json=body)).json()["data"][0]["embedding"]
    packed = await http.post("/v1/embeddings", json={**body, "encoding_format": "base64"})
    read = struct.unpack("<384f", base64.b64decode(packed.json()["data"][0]["embedding"]))
    assert plain == list(read)


async def test_a_question_finds_its_passage(openai: AsyncOpenAI) -> None:
    passages = ["The cat sleeps on the sofa.", "Port 6697 is for IRC over TLS.", "Bread is baked."]
    kept = await openai.embeddings.create(model=E5, input=passages)
    asked = await openai.embeddings.create(
        model=E5,
        input="Which port do I use for an encrypted chat connection?",
        extra_body={"input_type": "query"},
    )
    scores = [likeness(each.embedding, asked.data[0].embedding) for each in kept.data]
    assert scores.index(max(scores)) == 1


async def test_questions_and_passages_differ_and_passages_are_assumed(openai: AsyncOpenAI) -> None:
    async def embedded(**extra: Any) -> list[float]:
        answer = await openai.embeddings.create(model=E5, input="ngircd", extra_body=extra)
        return answer.data[0].embedding

    assumed, passage, query = await asyncio.gather(
        embedded(), embedded(input_type="passage"), embedded(input_type="query")
    )
    assert assumed == passage
    assert query != passage


async def test_many_texts_come_back_in_their_order(openai: AsyncOpenAI) -> None:
    texts = [f"line {number}" for number in range(2 * BATCH_TEXTS + 3)]
    many = await openai.embeddings.create(model=E5, input=texts)
    assert [each.index for each in many.data] == list(range(len(texts)))
    alone = await openai.embeddings.create(model=E5, input=texts[BATCH_TEXTS])
    best = max(many.data, key=lambda each: likeness(each.embedding, alone.data[0].embedding))
    assert best.index == BATCH_TEXTS


async def test_strange_texts_are_embedded_too(openai: AsyncOpenAI) -> None:
    texts = ["\0", "a\0b", "a b", "\u2028", "🙂", " "]
    answer = await openai.embeddings.create(model=E5, input=texts)
    assert len(answer.data) == len(texts)
    assert likeness(answer.data[1].embedding, answer.data[2].embedding) > 0.999


async def test_a_long_text_is_cut_to_the_tokens_that_are_asked_for(openai: AsyncOpenAI) -> None:
    text = "q7x@k2#" * 50
    answer = await openai.embeddings.create(
        model=E5, input=[text, "bread"], extra_body={"truncate_prompt_tokens": 20}
    )
    assert answer.usage.prompt_tokens <= 20 + 6
    whole = await openai.embeddings.create(model=E5, input=[text, "bread"])
    assert whole.usage.prompt_tokens > 150
    assert likeness(answer.data[1].embedding, whole.data[1].embedding) > 0.999
    assert 0.5 < likeness(answer.data[0].embedding, whole.data[0].embedding) < 0.999


async def test_the_model_is_listed_and_says_what_it_is(openai: AsyncOpenAI) -> None:
    assert E5 in [model.id async for model in openai.models.list()]
    card = (await openai.models.retrieve(E5)).to_dict()
    assert card["capabilities"] == {"embeddings": True}
    with pytest.raises(NotFoundError):
        await openai.chat.completions.create(model=E5, messages=[{"role": "user", "content": "x"}])


async def test_another_model_is_an_upstreams(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    answer = await openai.embeddings.create(
        model="terra", input=["one", "two words"], dimensions=2, encoding_format="float"
    )
    assert [each.embedding for each in answer.data] == [[0.5, -0.5], [0.5, -0.5]]
    assert (answer.model, answer.usage.prompt_tokens) == ("terra", 3)
    (asked,) = script.requests
    assert (asked["input"], asked["dimensions"]) == (["one", "two words"], 2)


async def test_embeddings_are_metered(http: httpx2.AsyncClient, openai: AsyncOpenAI) -> None:
    answer = await openai.embeddings.create(model=E5, input="hello")
    usage = (await http.get("/usage")).text
    assert E5 in usage
    assert str(answer.usage.prompt_tokens) in usage


async def test_passages_give_way_and_the_process_is_started_again_and_ends_with_the_server(
    embedder: Path,
) -> None:
    engine = EmbeddingEngine(embedder)
    async with engine.lifespan():
        await engine.embeddings({"input": "x", "encoding_format": "base64"})
        child = await newest_child()
        threads = [thread.id for thread in child.threads()]
        nice = [os.getpriority(os.PRIO_PROCESS, thread) for thread in threads]
        assert max(nice) == 19, "that of passages"
        assert nice.count(os.nice(0)) > 1, "that of questions, and the reader"
        child.kill()
        await asyncio.to_thread(psutil.wait_procs, [child])
        with suppress(EngineUnavailable):  # if its end has not been noticed yet
            await engine.embeddings({"input": "x", "encoding_format": "base64"})
        again = await engine.embeddings({"input": "x", "encoding_format": "float"})
        assert len(again["data"][0]["embedding"]) == 384
        child = await newest_child()
    assert not child.is_running()


async def test_a_question_overtakes_a_long_list_of_passages(embedder: Path) -> None:
    engine = EmbeddingEngine(embedder)
    async with engine.lifespan():
        many = {"input": ["some words about bread"] * 200, "encoding_format": "base64"}
        passages = asyncio.ensure_future(engine.embeddings(many))
        question = {"input": "bread?", "encoding_format": "base64", "input_type": "query"}
        for _ in range(3):
            await engine.embeddings(question)
        assert not passages.done()
        assert len((await passages)["data"]) == 200


async def test_a_process_that_dies_during_its_answer_is_unavailable(embedder: Path) -> None:
    engine = EmbeddingEngine(embedder)
    async with engine.lifespan():
        await engine.embeddings({"input": "x", "encoding_format": "base64"})
        child = await newest_child()
        pipe = output_pipe(child)
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)  # sixteen vectors do not fit
        asked = asyncio.ensure_future(
            engine.embeddings({"input": ["bread"] * 16, "encoding_format": "base64"})
        )
        while not engine._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        # In this thread, so that nothing is read: the pipe has only a part of the line when the
        # process dies.
        wait_for_output(pipe)
        child.kill()
        with pytest.raises(EngineUnavailable):
            await asked


async def test_a_client_that_leaves_does_not_give_its_vectors_to_the_next(embedder: Path) -> None:
    engine = EmbeddingEngine(embedder)
    async with engine.lifespan():
        wanted = await engine.embeddings({"input": "bread", "encoding_format": "base64"})
        leaving = asyncio.ensure_future(
            engine.embeddings({"input": ["other words"] * 64, "encoding_format": "base64"})
        )
        while not engine._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        again = await engine.embeddings({"input": "bread", "encoding_format": "base64"})
        assert again["data"] == wanted["data"]


def output_pipe(child: psutil.Process) -> int:
    """Return the descriptor from which this process reads the standard output of `child`."""
    wanted = os.readlink(f"/proc/{child.pid}/fd/1")
    for each in map(int, os.listdir("/proc/self/fd")):
        with suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{each}") == wanted:
                return each
    raise AssertionError("nobody reads its output")


def wait_for_output(pipe: int) -> None:
    """Block until there is something to read in `pipe`, without reading it."""
    readable, _, _ = select.select([pipe], [], [], PATIENCE)
    assert readable


async def newest_child() -> psutil.Process:
    """Return the process of the embedding model that was started last: that of `http` may run
    beside it."""
    found = await asyncio.to_thread(psutil.Process().children)
    ours = [each for each in found if "agent_server.engines.embeddings_child" in each.cmdline()]
    return max(ours, key=lambda each: float(each.create_time()))
