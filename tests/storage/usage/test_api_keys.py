"""Keys and usage in a real file."""

from __future__ import annotations

from datetime import date

import pytest

from storage.db.database import Database
from storage.usage.api_keys import Key, KeyExists, Keys, digest
from storage.usage.usage import UsageAmount, UsageKey, UsageTable
from tests.kit.stores import Stores

DAY = date(2026, 11, 21)


async def test_a_key_is_kept_as_a_digest_only(stores: Stores) -> None:
    path = stores("server")
    async with Database.open(path) as database:
        keys = Keys(database)
        wanted = Key("irc", 3, "background", 60, 10_000, 1_000_000, 2)
        secret = await keys.create(wanted)
        assert await keys.active() == {digest(secret): wanted}
        (stored,) = await keys.list_all()
        assert secret.startswith(stored.hint)
        assert len(stored.hint) < 10
    kept = stores.raw()
    assert digest(secret) in kept
    assert secret[len(stored.hint) :].encode() not in kept


async def test_a_name_has_one_key_until_it_is_revoked(database: Database) -> None:
    keys = Keys(database)
    first = await keys.create(Key("irc"))
    with pytest.raises(KeyExists, match="irc"):
        await keys.create(Key("irc"))
    assert await keys.revoke("irc")
    assert not await keys.revoke("irc")
    assert await keys.active() == {}
    second = await keys.create(Key("irc"))
    assert second != first
    assert list(await keys.active()) == [digest(second)]
    assert [each.revoked is None for each in await keys.list_all()] == [False, True]


async def test_usage_adds_up_by_day_tendril_and_model(database: Database) -> None:
    table = UsageTable(database)
    irc, web = UsageKey(DAY, "irc", "terra"), UsageKey(DAY, "web", "terra")
    await table.add({irc: UsageAmount(1, 100, 80, 10, 0.5), web: UsageAmount(1, 7, 0, 3)})
    await table.add({irc: UsageAmount(2, 50, 50, 5, 0.25)})
    assert await table.read(DAY, DAY) == [
        (irc, UsageAmount(3, 150, 130, 15, 0.75)),
        (web, UsageAmount(1, 7, 0, 3)),
    ]
    assert await table.read(DAY, DAY, "web") == [(web, UsageAmount(1, 7, 0, 3))]
    assert await table.read(date(2026, 11, 22), date(2026, 11, 30)) == []
