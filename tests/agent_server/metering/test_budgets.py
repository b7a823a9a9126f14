"""Budgets of a day, before a model that counts words, and quotas, with a clock set by hand."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.errors import RateLimited
from agent_server.metering.accounts import DAY, MINUTE, Budgets, Quotas, RateWindow, Spender
from agent_server.metering.request_context import OURSELVES
from agent_server.settings.prices import BudgetSettings, UsageSettings
from storage.db.database import Database
from storage.usage.api_keys import Key
from storage.usage.usage import SpenderUsage
from terrarium.clock import SteadyClock
from tests.kit.agent_server import agent_client
from tests.kit.data_files import server_path
from tests.kit.openai_script import ScriptedOpenAI

pytest_plugins = ("tests.kit.scripted_server",)

NOON = 20_000 * DAY + DAY / 2
CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hello you"}]}  # three tokens with "ok"
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


async def test_who_has_used_up_a_budget_is_refused_and_others_not(script: ScriptedOpenAI) -> None:
    usage = {"budgets": {"people": {"per": "person", "tokens_per_day": 3}}}
    async with agent_client({"upstream": script.url}, usage=usage) as http:
        ada, bob = {"x-person": "5eed"}, {"x-person": "f00d"}
        assert (await http.post(CHAT, json=HELLO, headers=ada)).status_code == 200
        refused = await http.post(CHAT, json=HELLO, headers=ada)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "budget_exhausted"
        assert int(refused.headers["retry-after"]) > 0
        assert (await http.post(CHAT, json=HELLO, headers=bob)).status_code == 200
        assert (await http.post(CHAT, json=HELLO)).status_code == 200
        long = await http.post(CHAT, json=HELLO, headers={"x-channel": "c" * 65})
        assert (long.status_code, long.json()["error"]["param"]) == (400, "x-channel")


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
