"""Accounts in the process that all servers share, and in its successor."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from agent_server.errors import EngineUnavailable, RateLimited
from agent_server.metering.accounts import ExpectedUse, Reservation, Spender
from agent_server.ray.shared_accounts import SharedAccounts
from storage.db.database import Database
from storage.usage.api_keys import Key
from storage.usage.usage import UsageAmount, UsageKey, UsageTable
from terrarium.config import Config
from tests.kit.data_files import server_path

IRC = Key("irc", tokens_per_day=100)
SPENDER = Spender("irc", "terra", "frogs", "ada")
USE = ExpectedUse(IRC, 10, SPENDER)
BUDGET = {"budgets": {"people": {"per": "person", "tokens_per_day": 50}}}


async def reserved(accounts: SharedAccounts, use: ExpectedUse = USE) -> Reservation:
    found = await accounts.reserve(token_hex(8), use)
    assert isinstance(found, Reservation)
    return found


async def test_a_successor_begins_with_the_usage_table(tmp_path: Path) -> None:
    today = UsageKey(datetime.now(UTC).date(), "irc", "terra")
    async with Database.open(server_path(tmp_path)) as database:
        await UsageTable(database).add({today: UsageAmount(1, prompt=90, completion=10)})
    accounts = SharedAccounts(Config({}, None, tmp_path))
    assert isinstance(await accounts.reserve(token_hex(8), USE), RateLimited)


async def test_what_was_reserved_at_its_predecessor_counts_whole(tmp_path: Path) -> None:
    config = Config({}, None, tmp_path)
    predecessor, successor = SharedAccounts(config), SharedAccounts(config)
    reservation = await reserved(predecessor)
    await predecessor.settle(reservation, 99, 0.0)
    await reserved(predecessor)
    await successor.settle(reservation, 100, 0.0)
    assert isinstance(await successor.reserve(token_hex(8), USE), RateLimited)


async def test_a_reservation_whose_answer_was_lost_is_not_made_twice(tmp_path: Path) -> None:
    accounts = SharedAccounts(Config({}, None, tmp_path))
    half = ExpectedUse(IRC, 50, SPENDER)
    first = await accounts.reserve("one call", half)
    assert first is not None
    assert await accounts.reserve("one call", half) == first
    assert isinstance(await accounts.reserve("another", half), Reservation)
    assert isinstance(await accounts.reserve("a third", half), RateLimited)


async def test_a_budget_counts_what_was_settled_and_not_what_was_reserved(tmp_path: Path) -> None:
    accounts = SharedAccounts(Config({"usage": BUDGET}, None, tmp_path))
    large = ExpectedUse(Key("irc"), 1000, SPENDER)
    first = await reserved(accounts, large)
    second = await reserved(accounts, large)
    await accounts.settle(first, 0, 0.0)
    await accounts.settle(second, 50, 0.0)
    refused = await accounts.reserve(token_hex(8), large)
    assert isinstance(refused, RateLimited)
    assert refused.code == "budget_exhausted"
    second_part = ExpectedUse(Key("irc"), 1000, SPENDER, is_continuation=True)
    assert await accounts.reserve(token_hex(8), second_part) is not None


async def test_without_the_table_no_key_gets_more_than_its_quota(tmp_path: Path) -> None:
    server_path(tmp_path).mkdir()
    accounts = SharedAccounts(Config({}, None, tmp_path))
    assert isinstance(await accounts.reserve(token_hex(8), USE), EngineUnavailable)
    server_path(tmp_path).rmdir()
    assert isinstance(await accounts.reserve(token_hex(8), USE), Reservation)
