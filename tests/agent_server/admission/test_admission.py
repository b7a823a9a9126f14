"""Who gets a place at the engine, over real HTTP in front of a scripted upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from agent_server.admission.admission import AdmissionPolicy
from storage.usage.api_keys import Key
from tests.kit.agent_server import CHAT, agent_client
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.server_keys import make_keys, until_metric

BACKGROUND = {"x-priority": "background"}
WAITING = 'terrarium_waiting{model="terra",priority="%s"} %d.0'
RUNNING = 'terrarium_running{model="terra"} %d.0'


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


def asked(script: ScriptedOpenAI) -> list[str]:
    """What the upstream was asked, in order."""
    return [request["messages"][-1]["content"] for request in script.requests]


@asynccontextmanager
async def client(
    script: ScriptedOpenAI, data: Path | None = None, *, slots: int = 1, **policy: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """A server with so many slots and such a policy."""
    model = {"upstream": script.url, "slots": slots}
    async with agent_client(model, None, data, AdmissionPolicy(**policy)) as http:
        yield http


async def test_interactive_requests_overtake_waiting_background_ones(
    script: ScriptedOpenAI,
) -> None:
    script.hang()
    async with client(script) as http, asyncio.TaskGroup() as tasks:
        tasks.create_task(http.post(CHAT, json=says("running")))
        await script.arrived(1)
        tasks.create_task(http.post(CHAT, json=says("job"), headers=BACKGROUND))
        await until_metric(http, WAITING % ("background", 1))
        tasks.create_task(http.post(CHAT, json=says("question")))
        await until_metric(http, WAITING % ("interactive", 1))
        script.release()
    assert asked(script) == ["running", "question", "job"]


async def test_background_without_a_word_yields_and_begins_again(script: ScriptedOpenAI) -> None:
    script.think().say("now")
    async with client(script, preemptive=True) as http, asyncio.TaskGroup() as tasks:
        job = tasks.create_task(http.post(CHAT, json=says("job"), headers=BACKGROUND))
        await script.arrived(1)
        question = await http.post(CHAT, json=says("question"))
        await script.client_gone()
    assert asked(script) == ["job", "question", "job"]
    assert question.json()["choices"][0]["message"]["content"] == "now"
    assert job.result().json()["choices"][0]["message"]["content"] == "ok"


async def test_a_background_request_that_has_begun_is_left_alone(script: ScriptedOpenAI) -> None:
    script.hang("word")
    async with client(script, preemptive=True) as http, asyncio.TaskGroup() as tasks:
        body = says("job", stream=True)
        async with http.stream("POST", CHAT, json=body, headers=BACKGROUND) as job:
            lines = job.aiter_lines()
            begun = await anext(lines)
            tasks.create_task(http.post(CHAT, json=says("question")))
            await until_metric(http, WAITING % ("interactive", 1))
            script.release()
            said = begun + "".join([line async for line in lines])
    assert asked(script) == ["job", "question"]
    assert "word" in said
    assert said.endswith("[DONE]")


async def test_no_background_begins_while_anybody_waits_for_a_word(script: ScriptedOpenAI) -> None:
    script.think()
    async with client(script, preemptive=True, slots=4) as http, asyncio.TaskGroup() as tasks:
        tasks.create_task(http.post(CHAT, json=says("question")))
        await script.arrived(1)
        tasks.create_task(http.post(CHAT, json=says("job"), headers=BACKGROUND))
        await until_metric(http, WAITING % ("background", 1))
        tasks.create_task(http.post(CHAT, json=says("another")))
        await script.arrived(2)
        assert asked(script) == ["question", "another"]
        script.release()
    assert asked(script) == ["question", "another", "job"]


async def test_a_client_that_leaves_while_making_room_is_forgotten(script: ScriptedOpenAI) -> None:
    script.think().think()
    async with client(script, preemptive=True) as http, asyncio.TaskGroup() as tasks:
        job = asyncio.ensure_future(http.post(CHAT, json=says("job"), headers=BACKGROUND))
        await script.arrived(1)
        tasks.create_task(http.post(CHAT, json=says("question")))
        await script.arrived(2)
        job.cancel()
        await until_metric(http, WAITING % ("background", 0))
        script.release()
        await until_metric(http, RUNNING % 0)
    assert asked(script) == ["job", "question"]


async def test_only_an_upstream_with_priorities_is_told_who_waits(script: ScriptedOpenAI) -> None:
    async with agent_client({"upstream": script.url, "priority": True}) as http:
        await http.post(CHAT, json=says("question"))
        await http.post(CHAT, json=says("job"), headers=BACKGROUND)
        job = {"prompt": "job", "stream": True}
        await http.post("/v1/completions", json=job, headers=BACKGROUND)
    async with client(script) as http:
        await http.post(CHAT, json=says("job"), headers=BACKGROUND)
    assert [request.get("priority") for request in script.requests] == [0, 1, 1, None]


async def test_every_endpoint_that_makes_tokens_waits_for_a_place(script: ScriptedOpenAI) -> None:
    script.hang()
    bodies = {
        "/v1/generate": {"prompt": "one"},
        "/v1/completions": {"model": "terra", "prompt": "two", "max_tokens": 3},
        "/v1/messages": says("three", model="terra", max_tokens=3),
        CHAT: says("four", stream=True),
    }
    async with client(script) as http, asyncio.TaskGroup() as tasks:
        tasks.create_task(http.post(CHAT, json=says("running")))
        await script.arrived(1)
        for path, body in bodies.items():
            tasks.create_task(http.post(path, json=body))
        await until_metric(http, WAITING % ("interactive", len(bodies)))
        assert len(script.requests) == 1
        script.release()


async def test_a_full_queue_is_a_429_that_says_when_to_come_back(script: ScriptedOpenAI) -> None:
    script.hang()
    async with client(script, most_waiting=1) as http, asyncio.TaskGroup() as tasks:
        for count, text in enumerate(("running", "waiting")):
            tasks.create_task(http.post(CHAT, json=says(text)))
            await until_metric(http, RUNNING % 1)
            await until_metric(http, WAITING % ("interactive", count))
        refused = await http.post(CHAT, json=says("too much"))
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1
        script.release()
    assert asked(script) == ["running", "waiting"]


async def test_a_flood_loses_its_newest_to_another(script: ScriptedOpenAI, tmp_path: Path) -> None:
    script.hang()
    async with client(script, tmp_path, most_waiting=2) as http, asyncio.TaskGroup() as tasks:
        made = await make_keys(http, tmp_path, Key("flood"), Key("quiet"))
        flood = []
        for count in range(3):
            body = says(f"flood {count}")
            flood.append(tasks.create_task(http.post(CHAT, json=body, headers=made["flood"])))
            await until_metric(http, RUNNING % 1)
            await until_metric(http, WAITING % ("interactive", count))
        quiet = tasks.create_task(http.post(CHAT, json=says("quiet"), headers=made["quiet"]))
        assert (await flood[2]).status_code == 429
        script.release()
    assert quiet.result().status_code == 200
    assert asked(script) == ["flood 0", "quiet", "flood 1"]


async def test_who_waits_too_long_gets_a_503_and_holds_no_place(script: ScriptedOpenAI) -> None:
    script.hang()
    async with client(script, max_wait=0.2) as http, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(http.post(CHAT, json=says("running")))
        await script.arrived(1)
        late = await http.post(CHAT, json=says("late"))
        assert late.status_code == 503
        assert late.json()["error"]["code"] == "queue_timeout"
        assert int(late.headers["retry-after"]) >= 1
        await until_metric(http, WAITING % ("interactive", 0))
        script.release()
        assert (await running).status_code == 200
        assert (await http.post(CHAT, json=says("after"))).status_code == 200
    assert asked(script) == ["running", "after"]


async def test_a_client_that_leaves_queue_or_answer_frees_its_place(script: ScriptedOpenAI) -> None:
    script.hang("a beginning")
    async with client(script) as http, asyncio.TaskGroup() as tasks:
        async with http.stream("POST", CHAT, json=says("first", stream=True)) as response:
            pieces = response.aiter_raw()
            assert b"chat.completion.chunk" in await anext(pieces)
            leaver = tasks.create_task(http.post(CHAT, json=says("leaver")))
            await until_metric(http, WAITING % ("interactive", 1))
            leaver.cancel()
            await until_metric(http, WAITING % ("interactive", 0))
            waiter = tasks.create_task(http.post(CHAT, json=says("waiter")))
            await until_metric(http, WAITING % ("interactive", 1))
        assert (await waiter).status_code == 200
        await until_metric(http, RUNNING % 0)
    assert asked(script) == ["first", "waiter"]


async def test_answers_that_fail_or_break_off_give_their_place_back(script: ScriptedOpenAI) -> None:
    async with client(script) as http:
        for _ in range(3):
            script.fail(500, "no").cut("half of")
            assert (await http.post(CHAT, json=says("x"))).status_code >= 500
            assert "error" in (await http.post(CHAT, json=says("y", stream=True))).text
        assert (await http.post(CHAT, json=says("z"))).status_code == 200
        await until_metric(http, RUNNING % 0)


async def test_a_request_that_another_model_answers_as_a_queue_is_full_is_one_request(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    script.hang()
    async with ScriptedOpenAI() as other:
        model = {
            "upstream": script.url,
            "slots": 1,
            "models": {"other": {"upstream": other.url}},
            "aliases": {"best": ["terra", "other"]},
        }
        async with (
            agent_client(model, None, tmp_path, AdmissionPolicy(most_waiting=1)) as http,
            asyncio.TaskGroup() as tasks,
        ):
            made = await make_keys(http, tmp_path, Key("irc", requests_per_minute=1), Key("web"))
            for count, text in enumerate(("running", "waiting")):
                tasks.create_task(http.post(CHAT, json=says(text), headers=made["web"]))
                await until_metric(http, RUNNING % 1)
                await until_metric(http, WAITING % ("interactive", count))
            answer = await http.post(CHAT, json=says("x", model="best"), headers=made["irc"])
            script.release()
        assert (answer.status_code, asked(other)) == (200, ["x"])


async def test_tokens_of_today_count_after_a_restart(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    script.say("one two three four")
    async with client(script, tmp_path) as http:
        made = await make_keys(http, tmp_path, Key("irc", tokens_per_day=5))
        first = await http.post(CHAT, json=says("a question"), headers=made["irc"])
        assert first.status_code == 200
    async with client(script, tmp_path) as http:
        again = await http.post(CHAT, json=says("again"), headers=made["irc"])
    assert again.status_code == 429
    assert "tokens per day" in again.json()["error"]["message"]


async def test_of_one_key_only_so_many_run_at_once(script: ScriptedOpenAI, tmp_path: Path) -> None:
    script.hang()
    async with client(script, tmp_path, slots=4) as http, asyncio.TaskGroup() as tasks:
        made = await make_keys(http, tmp_path, Key("irc", parallel=1), Key("web"))
        for text in ("first", "second"):
            tasks.create_task(http.post(CHAT, json=says(text), headers=made["irc"]))
            await until_metric(http, RUNNING % 1)
        await until_metric(http, WAITING % ("interactive", 1))
        assert (await http.post(CHAT, json=says("web"), headers=made["web"])).status_code == 200
        script.release()
    assert asked(script) == ["first", "web", "second"]


async def test_after_a_failure_an_engine_is_ready_with_a_token(script: ScriptedOpenAI) -> None:
    async with client(script) as http:
        assert (await http.get("/ready")).status_code == 200
        assert script.requests == [], "a healthy engine is not asked for a token"
        script.fail(500, "out of memory").fail(500, "out of memory")
        assert (await http.post(CHAT, json=says("x"))).status_code >= 500
        assert (await http.get("/ready")).status_code == 503
        assert (await http.get("/ready")).status_code == 200
        count = len(script.requests)
        assert (await http.get("/ready")).status_code == 200
        assert len(script.requests) == count


async def test_counting_is_held_to_the_quotas_of_a_key_apart_from_its_answers(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    async with client(script, tmp_path) as http:
        keys = (Key("few", requests_per_minute=1), Key("small", tokens_per_minute=50))
        headers = await make_keys(http, tmp_path, *keys)
        claude = says("hi", model="terra")
        for path, body in (("/tokenize", says("hi")), ("/v1/messages/count_tokens", claude)):
            answer = await http.post(path, json=body, headers=headers["few"])
            status = 200 if path == "/tokenize" else 429
            assert answer.status_code == status
        assert answer.headers["retry-after"]
        assert (await http.post(CHAT, json=says("hi"), headers=headers["few"])).status_code == 200
        long = {"prompt": "word " * 200}
        assert (await http.post("/tokenize", json=long, headers=headers["small"])).is_success
        refused = await http.post("/tokenize", json=long, headers=headers["small"])
        assert refused.json()["error"]["code"] == "quota_exceeded"


async def test_counting_waits_in_a_queue_of_its_own(script: ScriptedOpenAI, tmp_path: Path) -> None:
    script.hang()
    async with client(script, tmp_path, most_waiting=1) as http, asyncio.TaskGroup() as tasks:
        tasks.create_task(http.post(CHAT, json=says("running")))
        await script.arrived(1)
        assert (await http.post("/tokenize", json=says("hi"))).status_code == 200
        answers = [tasks.create_task(http.post("/tokenize", json=says("hi"))) for _ in range(40)]
        done = [(await answer).status_code for answer in answers]
        assert set(done) == {200, 429}
        script.release()
