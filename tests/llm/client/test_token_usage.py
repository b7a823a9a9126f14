"""What tokens were spent on: counted once, by purpose and day, still known after a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from harnesses.core.tendril.status import read_report
from harnesses.core.tendril.turn import TurnRequest
from llm.client.client import RequestOptions
from llm.client.token_usage import ANSWER, TokenAccounting
from storage.db.database import Database
from storage.usage.usage import TokenUsage, UsageAmount
from tests.harnesses.core.tendril.test_base import small
from tests.kit.openai_script import ScriptedOpenAI

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ASKED = RequestOptions("irc/net/#c/ada", room="net/#c")
SUMMED = RequestOptions("irc/net/#c", room="net/#c", purpose="summary")


class Days:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


async def test_answers_and_work_beside_them_are_told_apart(tmp_path: Path) -> None:
    async with (
        Database.open(tmp_path / "t.db") as database,
        TokenAccounting.open(database, Days()) as accounting,
    ):
        accounting.record(ASKED, TokenUsage(100, 10, 90))
        accounting.record(ASKED, TokenUsage(110, 5, 100))
        accounting.record(SUMMED, TokenUsage(50, 7))
        assert (accounting.today(), accounting.today(ANSWER), accounting.today("summary")) == (
            *(282, 225, 57),
        )
        assert await accounting.by_purpose(NOON.date()) == {
            "answer": UsageAmount(2, 210, 190, 15),
            "summary": UsageAmount(1, 50, 0, 7),
        }
        assert await accounting.by_purpose(NOON.date(), room="net/#d") == {}
        one = await accounting.by_purpose(NOON.date(), conversation=ASKED.session)
        assert one == {"answer": UsageAmount(2, 210, 190, 15)}


async def test_a_new_day_begins_with_nothing_and_the_old_one_is_kept(tmp_path: Path) -> None:
    clock = Days()
    async with (
        Database.open(tmp_path / "t.db") as database,
        TokenAccounting.open(database, clock) as accounting,
    ):
        accounting.record(ASKED, TokenUsage(100, 10))
        clock.now += timedelta(days=1)
        assert accounting.today() == 0
        accounting.record(ASKED, TokenUsage(1, 1))
        assert accounting.today() == 2
        assert await accounting.by_purpose(clock.now.date()) == {"answer": UsageAmount(1, 1, 0, 1)}
        assert await accounting.by_purpose(NOON.date()) == {"answer": UsageAmount(2, 101, 0, 11)}


async def test_names_go_and_amounts_stay(tmp_path: Path) -> None:
    clock, path = Days(), tmp_path / "t.db"
    async with Database.open(path) as database, TokenAccounting.open(database, clock) as accounting:
        accounting.record(ASKED, TokenUsage(100, 10))
        accounting.record(SUMMED, TokenUsage(50, 7))
        before = await accounting.by_purpose(NOON.date())
        await accounting.forget(ASKED.session)
        assert await accounting.by_purpose(NOON.date(), conversation=ASKED.session) == {}
        assert await accounting.by_purpose(NOON.date(), conversation=SUMMED.session) != {}
        assert await accounting.by_purpose(NOON.date()) == before
    clock.now += timedelta(days=40)
    async with Database.open(path) as database, TokenAccounting.open(database, clock) as accounting:
        accounting.record(ASKED, TokenUsage(1, 1))
        assert await accounting.by_purpose(NOON.date(), conversation=SUMMED.session) == {}
        assert (await accounting.by_purpose(NOON.date()))["summary"] == before["summary"]


async def test_what_a_tendril_has_spent_today_outlives_it_and_is_told_to_others(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script:
        async with small(tmp_path, script.url) as tendril:
            script.say("Seven.")
            await tendril.turn(
                TurnRequest(conversation="kitchen", who="ada", text="How many cups?")
            )
            assert (spent := tendril.accounting.today()) > 15
            assert tendril.accounting.today() == spent
        async with small(tmp_path, script.url) as tendril:
            assert tendril.accounting.today() == spent
            await tendril.clear("kitchen")
            assert tendril.accounting.today(ANSWER) == spent
            tendril.status.ready()
            said = read_report(tmp_path, "small")
            assert said
            assert said.tokens_today == spent
