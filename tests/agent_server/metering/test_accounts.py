"""Budgets of a day, before a model that counts words; quotas, with a clock set by hand; and usage
rows, written beside the answers and never in their way."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack, closing
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.engine_protocol import EngineState
from agent_server.errors import RateLimited
from agent_server.metering.accounts import DAY, MINUTE, Budgets, Quotas, RateWindow, Spender
from agent_server.metering.request_context import OURSELVES
from agent_server.metering.telemetry import Metrics
from agent_server.settings.prices import BudgetSettings, UsageSettings
from storage.db.database import Database
from storage.usage.api_keys import Key
from storage.usage.usage import SpenderUsage
from terrarium.clock import SteadyClock
from tests.kit.agent_server import CHAT, HELLO, agent_client, until_ready
from tests.kit.command import begun, line_with
from tests.kit.data_files import server_path
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE, until
from tests.kit.ports import free_port

NOON = 20_000 * DAY + DAY / 2
PRICES = {"big": {"prompt": 1_000_000, "completion": 1_000_000}}  # one each token


def budgets(**settings: Mapping[str, Any]) -> Budgets:
    return Budgets({name: BudgetSettings(**each) for name, each in settings.items()})


def is_open(made: Budgets, spender: Spender, now: float = NOON) -> bool:
    """Return whether the spender may ask."""
    try:
        made.require_room(spender, now)
    except RateLimited as error:
        return error.code != "budget_exhausted"
    return True


ADA, BOB = (Spender("irc", "terra", "frogs", name) for name in ("ada", "bob"))


@pytest.mark.parametrize(
    ("per", "others"),
    [
        ("person", [BOB, Spender("irc", "terra", "frogs")]),
        ("channel", [Spender("irc", "terra", "toads", "ada"), Spender("cron", "terra")]),
        ("tendril", [Spender("web", "terra", "frogs", "ada")]),
        ("model", [Spender("irc", "big", "frogs", "ada")]),
        ("all", []),
    ],
)
def test_each_has_a_budget_of_its_own(per: str, others: list[Spender]) -> None:
    made = budgets(day={"per": per, "tokens_per_day": 100})
    made.spend(ADA, 99, 0.0, NOON)
    assert is_open(made, ADA)
    made.spend(ADA, 1, 0.0, NOON)
    assert not is_open(made, ADA)
    assert all(is_open(made, other) for other in others)
    assert is_open(made, BOB) == (per == "person")


def test_a_budget_of_one_tendril_and_model_counts_no_other() -> None:
    made = budgets(day={"tendril": "irc", "model": "big", "tokens_per_day": 10})
    made.spend(Spender("irc", "terra"), 100, 0.0, NOON)
    made.spend(Spender("web", "big"), 100, 0.0, NOON)
    assert is_open(made, Spender("irc", "big"))
    made.spend(Spender("irc", "big"), 10, 0.0, NOON)
    assert not is_open(made, Spender("irc", "big"))
    assert is_open(made, Spender("web", "big"))


def test_money_counts_as_tokens_do_and_a_new_day_begins_with_nothing_spent() -> None:
    made = budgets(day={"cost_per_day": 2.0})
    made.spend(ADA, 10**9, 1.9, NOON)
    assert is_open(made, BOB)
    made.spend(ADA, 1, 0.1, NOON)
    with pytest.raises(RateLimited, match="the budget day of 2") as caught:
        made.require_room(BOB, NOON)
    assert caught.value.headers["retry-after"] == str(DAY // 2)
    assert is_open(made, BOB, NOON + DAY / 2)


def test_the_tests_of_a_model_are_in_no_budget() -> None:
    made = budgets(day={"tokens_per_day": 1})
    made.spend(Spender(OURSELVES.name, "terra"), 100, 0.0, NOON)
    assert is_open(made, ADA)
    made.spend(ADA, 1, 0.0, NOON)
    assert is_open(made, Spender(OURSELVES.name, "terra"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"budgets": {"day": {"per": "person"}}}, "give tokens_per_day, cost_per_day or both"),
        ({"budgets": {"day": {"cost_per_day": 1}}}, "usage.prices.MODEL"),
        (
            {"budgets": {"day": {"cost_per_day": 1, "model": "huge"}}, "prices": PRICES},
            "usage.prices.huge",
        ),
    ],
)
def test_a_budget_that_could_never_be_used_up_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        UsageSettings.model_validate(wrong)


@pytest.mark.parametrize("per", ["person", "channel"])
async def test_what_a_person_or_channel_has_spent_is_known_after_a_restart_and_gone_the_next_day(
    script: ScriptedOpenAI, tmp_path: Path, per: str
) -> None:
    usage = {"budgets": {"each": {"per": per, "tokens_per_day": 3}}}
    ada, bob = ({"x-person": each, "x-channel": f"0f{each}"} for each in ("5eed", "f00d"))
    for answers in ([(ada, 200), (ada, 429)], [(ada, 429), (bob, 200)], [(bob, 429), ({}, 200)]):
        async with agent_client({"upstream": script.url}, None, tmp_path, usage=usage) as http:
            for headers, status in answers:
                answer = await http.post(CHAT, json=HELLO, headers=headers)
                assert answer.status_code == status
    async with Database.open(server_path(tmp_path)) as database:
        spenders, today = SpenderUsage(database), datetime.now(UTC).date()
        assert {key.person for key, _, _ in await spenders.read(today)} == {"5eed", "f00d"}
        await spenders.forget_before(today + timedelta(days=1))
        assert await spenders.read(today) == []


async def test_without_a_budget_of_people_nothing_of_them_is_kept(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    usage = {"budgets": {"all": {"tokens_per_day": 30}}}
    async with agent_client({"upstream": script.url}, None, tmp_path, usage=usage) as http:
        answer = await http.post(CHAT, json=HELLO, headers={"x-person": "5eed"})
        assert answer.status_code == 200
    async with Database.open(server_path(tmp_path)) as database:
        assert await SpenderUsage(database).read(datetime.now(UTC).date()) == []


def of_two(small: ScriptedOpenAI, big: ScriptedOpenAI) -> dict[str, Any]:
    """The table of a model `terra` that answers where a model `big` cannot."""
    others = {"big": {"upstream": big.url, "tools": "constrained"}}
    return {"upstream": small.url, "models": others, "aliases": {"best": ["big", "terra"]}}


async def test_what_was_spent_survives_a_restart_and_the_next_model_answers(tmp_path: Path) -> None:
    usage = {"prices": PRICES, "budgets": {"money": {"model": "big", "cost_per_day": 3}}}
    async with ScriptedOpenAI() as small, ScriptedOpenAI() as big:
        for models in (["big", "terra"], ["terra"]):
            async with agent_client(of_two(small, big), None, tmp_path, usage=usage) as http:
                for name in models:
                    answer = await http.post(CHAT, json=HELLO | {"model": "best"})
                    assert (answer.status_code, answer.json()["model"]) == (200, name)
                assert (await http.post(CHAT, json=HELLO | {"model": "big"})).status_code == 429


async def test_a_model_that_answers_for_one_that_failed_has_its_own_budget_checked() -> None:
    usage = {"budgets": {"terra": {"model": "terra", "tokens_per_day": 3}}}
    call = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    async with (
        ScriptedOpenAI() as small,
        ScriptedOpenAI() as big,
        agent_client(of_two(small, big), usage=usage) as http,
    ):
        assert (await http.post(CHAT, json=HELLO)).status_code == 200
        # Tokens of the other one count, though nothing of them is passed on.
        big.fail(503, "not now").cut("{")
        for number, more in enumerate(({}, {"tools": [call], "tool_choice": "required"}), 1):
            refused = await http.post(CHAT, json=HELLO | {"model": "best", **more})
            assert (refused.status_code, len(big.requests)) == (429, number)
            assert refused.json()["error"]["code"] == "budget_exhausted"


def refusal(quotas: Quotas, key: Key, now: float, tokens: int = 10) -> int:
    """The seconds that a refused request is told to wait."""
    with pytest.raises(RateLimited) as caught:
        quotas.charge(key, tokens, now)
    assert caught.value.code == "quota_exceeded"
    return int(caught.value.headers["retry-after"])


def test_requests_over_the_quota_are_let_in_after_the_wait_that_was_told() -> None:
    quotas, key = Quotas(), Key("irc", requests_per_minute=2)
    quotas.charge(key, 10, NOON)
    quotas.charge(key, 10, NOON + 20)
    wait = refusal(quotas, key, NOON + 30)
    assert wait == 31
    quotas.charge(key, 10, NOON + 30, is_admitted=True)  # a part of an answer is no request
    quotas.charge(Key("web", requests_per_minute=1), 10, NOON + 30)  # each key has its own quota
    refusal(quotas, key, NOON + 30 + wait - 2)
    quotas.charge(key, 10, NOON + 30 + wait)


def test_tokens_count_as_estimated_until_they_are_known() -> None:
    quotas, key = Quotas(), Key("irc", tokens_per_minute=1000)
    quotas.charge(key, 1000, NOON)
    refusal(quotas, key, NOON + 1)
    quotas.correct("irc", NOON, -100)
    quotas.charge(key, 100, NOON + 2)
    refusal(quotas, key, NOON + 3)


def test_a_quota_for_a_day_frees_at_midnight_utc() -> None:
    quotas, key = Quotas(), Key("irc", tokens_per_day=1000)
    quotas.seed("irc", 1000, NOON)
    assert refusal(quotas, key, NOON) == DAY / 2
    quotas.charge(key, 10, NOON + DAY / 2)


def test_what_ends_after_midnight_does_not_count_for_the_new_day() -> None:
    quotas, key = Quotas(), Key("irc", tokens_per_day=100)
    late = NOON + DAY / 2 - 1
    quotas.charge(key, 10, late)
    quotas.charge(key, 10, NOON + DAY / 2 + 1)
    quotas.correct("irc", late, 9_990)
    quotas.charge(key, 10, NOON + DAY / 2 + 2)


@given(
    steps=st.lists(st.tuples(st.floats(0, 40), st.integers(1, 50)), min_size=1, max_size=60),
    limit=st.integers(1, 200),
)
def test_a_window_never_lets_more_than_its_limit_and_one_more_into_a_minute(
    steps: list[tuple[float, int]], limit: int
) -> None:
    window, now = RateWindow(), 1_000_000.0
    taken: list[tuple[float, int]] = []
    for pause, amount in steps:
        now += pause
        wait = window.retry_after(now, limit)
        assert 0 <= wait <= MINUTE + 1
        if wait:
            assert deepcopy(window).retry_after(now + wait + 0.001, limit) == 0
            continue
        before = sum(used for time, used in taken if time > now - MINUTE)
        assert before < limit
        window.add(now, amount)
        taken.append((now, amount))


@pytest.mark.parametrize("jump", [-DAY, 365 * DAY])
def test_a_clock_that_jumps_does_not_lock_a_key(jump: float) -> None:
    time_of_day, uptime = [NOON], [0.0]
    clock = SteadyClock(lambda: time_of_day[0], lambda: uptime[0])
    quotas, key = Quotas(), Key("irc", requests_per_minute=1, tokens_per_minute=100)
    quotas.charge(key, 100, clock.time())
    time_of_day[0] += jump
    uptime[0] += 30
    assert 0 < refusal(quotas, key, clock.time()) <= 32
    uptime[0] += 32
    quotas.charge(key, 100, clock.time())


def written(data: Path) -> int:
    """The requests in the file's usage rows."""
    with closing(sqlite3.connect(server_path(data), timeout=PATIENCE)) as database:
        (count,) = database.execute("SELECT coalesce(sum(requests), 0) FROM usage").fetchone()
    return int(count)


async def until_written(data: Path, count: int) -> None:
    """Return when `count` requests are in the file. Raises TimeoutError."""
    await until(lambda: written(data) >= count)
    assert written(data) == count


async def requests_of(http: httpx2.AsyncClient) -> int:
    """The requests that /usage tells of."""
    answer = (await http.get("/usage")).json()
    total: dict[str, Any] = answer["total"]
    return int(total["requests"])


async def test_a_locked_file_loses_no_answer_or_row(script: ScriptedOpenAI, tmp_path: Path) -> None:
    async with agent_client({"upstream": script.url}, None, tmp_path) as http:
        with closing(sqlite3.connect(server_path(tmp_path), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(3):
                assert (await http.post(CHAT, json=HELLO)).status_code == 200
            assert await requests_of(http) == 3, "told from memory"
            assert (await http.post(CHAT, json=HELLO)).status_code == 200
            assert written(tmp_path) == 0
            other.execute("ROLLBACK")
        await until_written(tmp_path, 4)
        assert await requests_of(http) == 4


async def test_a_full_disk_fails_no_answer_and_rows_are_written_when_there_is_room(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    port = free_port()
    settings = {"MODEL_UPSTREAM": script.url, "SERVER_PORT": str(port)}
    async with (
        begun("server", "--data", "data", cwd=tmp_path, **settings) as process,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http,
    ):
        await line_with(process.stderr, "server.listening")
        await until_ready(str(http.base_url).rstrip("/"))
        # No file of this process may grow: to SQLite that is a disk without room.
        unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
        for _ in range(3):
            assert (await http.post(CHAT, json=HELLO)).status_code == 200
        await line_with(process.stderr, "usage.unwritten")
        assert (await http.post(CHAT, json=HELLO)).status_code == 200
        assert await requests_of(http) == 4
        assert "\nterrarium_disk_trouble 1.0" in (await http.get("/metrics")).text
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        await until_written(tmp_path / "data", 4)
        assert await requests_of(http) == 4  # it waits for a write that is going on
        assert "\nterrarium_disk_trouble 0.0" in (await http.get("/metrics")).text


async def test_cost_follows_the_price_table_and_the_end_loses_no_row(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    prices = {"terra": {"prompt": 10, "cached": 1, "completion": 100}}
    usage = {"currency": "EUR", "prices": prices}
    script.cached_tokens = 1
    script.say("one two three").say("four")
    long = {"messages": [{"role": "user", "content": "hello " * 40}]}
    async with agent_client({"upstream": script.url}, None, tmp_path, usage=usage) as http:
        for _ in range(2):  # the second finds the first in the cache
            assert (await http.post(CHAT, json=long)).status_code == 200
        answer = (await http.get("/usage")).json()
        wrong = await http.get("/usage", params={"since": "2026-02-02", "until": "2026-02-01"})
        assert (await http.post(CHAT, json=long)).status_code == 200
    assert written(tmp_path) == 3, "that of the last seconds as well, when the server stops"
    assert answer["currency"] == "EUR"
    (row,) = answer["data"]
    assert (row["tendril"], row["model"], row["cached_tokens"]) == ("anonymous", "terra", 1)
    assert row["cost"] == pytest.approx((79 * 10 + 1 * 1 + 4 * 100) / 1_000_000)
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "since"


@pytest.mark.parametrize("wanted", ["false", "true"])
async def test_prompts_are_in_the_log_only_when_that_is_wanted(
    script: ScriptedOpenAI, tmp_path: Path, wanted: str
) -> None:
    port = free_port()
    settings = {
        "MODEL_UPSTREAM": script.url, "SERVER_PORT": str(port), "SERVER_LOG_PROMPTS": wanted,
        "TERRARIUM_LOG_LEVEL": "debug",
    }  # fmt: skip
    words = ("--log-level", "debug", "server", "--data", "data")
    async with begun(*words, cwd=tmp_path, **settings) as process:
        url = f"http://127.0.0.1:{port}"
        await line_with(process.stderr, "server.listening")
        await until_ready(url)
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            body = {"messages": [{"role": "user", "content": "my secret garden"}]}
            assert (await http.post(CHAT, json=body)).status_code == 200
            assert (await http.post(CHAT, json=body | {"n": "many"})).status_code == 400
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    assert ("secret garden" in (out + err).decode()) == (wanted == "true")
    lines = err.decode().splitlines()
    done = next(line for line in lines if f"route={CHAT} " in line and "status=200" in line)
    assert "tendril=anonymous" in done


def test_a_queue_that_was_replaced_under_its_name_leaves_the_gauges_to_its_successor() -> None:
    metrics, old = Metrics(), ExitStack()
    old.enter_context(metrics.watch_engine("terra", lambda: EngineState(1, 0, {})))
    with metrics.watch_engine("terra", lambda: EngineState(2, 0, {})):
        old.close()
        assert b'terrarium_slots{model="terra"} 2.0' in metrics.exposition()
    assert b'terra"' not in metrics.exposition()
