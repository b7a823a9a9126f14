"""Budgets of a day, before a model that counts words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_server.errors import RateLimited
from agent_server.metering.accounts import Budgets, Spender
from agent_server.metering.request_context import OURSELVES
from agent_server.settings.prices import BudgetSettings, UsageSettings
from storage.db.database import Database
from storage.usage.usage import SpenderUsage
from tests.kit.agent_server import agent_client
from tests.kit.data_files import server_path
from tests.kit.openai_script import ScriptedOpenAI

pytest_plugins = ("tests.kit.scripted_server",)

DAY = 86_400
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


async def test_a_person_whose_budget_is_used_up_is_refused_and_others_are_not(
    script: ScriptedOpenAI,
) -> None:
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


async def test_what_was_spent_of_a_model_is_known_after_a_restart_and_the_next_model_answers(
    tmp_path: Path,
) -> None:
    usage = {"prices": PRICES, "budgets": {"money": {"model": "big", "cost_per_day": 3}}}
    async with ScriptedOpenAI() as small, ScriptedOpenAI() as big:
        model = {
            "upstream": small.url,
            "models": {"big": {"upstream": big.url}},
            "aliases": {"best": ["big", "terra"]},
        }
        asked = HELLO | {"model": "best"}
        for models in (["big", "terra"], ["terra"]):
            async with agent_client(model, None, tmp_path, usage=usage) as http:
                for name in models:
                    answer = await http.post(CHAT, json=asked)
                    assert (answer.status_code, answer.json()["model"]) == (200, name)
                assert (await http.post(CHAT, json=HELLO | {"model": "big"})).status_code == 429


async def test_a_model_that_answers_for_one_that_failed_has_its_own_budget_checked() -> None:
    usage = {"budgets": {"terra": {"model": "terra", "tokens_per_day": 3}}}
    async with ScriptedOpenAI() as small, ScriptedOpenAI() as big:
        model = {
            "upstream": small.url,
            "models": {"big": {"upstream": big.url}},
            "aliases": {"best": ["big", "terra"]},
        }
        async with agent_client(model, usage=usage) as http:
            assert (await http.post(CHAT, json=HELLO)).status_code == 200
            big.fail(503, "not now")
            refused = await http.post(CHAT, json=HELLO | {"model": "best"})
            assert (refused.status_code, len(big.requests)) == (429, 1)
            assert refused.json()["error"]["code"] == "budget_exhausted"


async def test_a_model_that_died_in_its_answer_does_not_open_the_budget_of_the_next_one() -> None:
    usage = {"budgets": {"terra": {"model": "terra", "tokens_per_day": 3}}}
    call = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    asked = HELLO | {"model": "best", "tools": [call], "tool_choice": "required"}
    async with ScriptedOpenAI() as small, ScriptedOpenAI() as big:
        model = {
            "upstream": small.url,
            "models": {"big": {"upstream": big.url, "tools": "constrained"}},
            "aliases": {"best": ["big", "terra"]},
        }
        async with agent_client(model, usage=usage) as http:
            assert (await http.post(CHAT, json=HELLO)).status_code == 200
            big.cut("{")  # tokens that count, though nothing of them is passed on
            refused = await http.post(CHAT, json=asked)
            assert (refused.status_code, len(big.requests)) == (429, 1)
            assert refused.json()["error"]["code"] == "budget_exhausted"
