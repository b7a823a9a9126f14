"""The registry of tendrils: how long it keeps a report, and of whom."""

from __future__ import annotations

from agent_server.tendril_registry import (
    MAX_TENDRILS,
    REPORT_TIMEOUT,
    TendrilRegistry,
    TendrilReport,
)

READY = TendrilReport("ready")


async def test_a_tendril_that_is_silent_for_long_is_gone_and_keys_are_apart() -> None:
    now = 0.0
    registry = TendrilRegistry(lambda: now)
    await registry.record("irc", "irc", READY)
    now = REPORT_TIMEOUT / 2
    await registry.record("irc", "mallory", TendrilReport("waiting"))
    assert [(each.key, each.report.state, each.age) for each in await registry.present()] == [
        ("irc", "ready", REPORT_TIMEOUT / 2),
        ("mallory", "waiting", 0),
    ]
    now = REPORT_TIMEOUT + 1
    assert [each.key for each in await registry.present()] == ["mallory"]


async def test_one_key_cannot_crowd_out_the_tendrils_of_others() -> None:
    registry = TendrilRegistry()
    for number in range(MAX_TENDRILS):
        assert await registry.record(f"t{number}", "mallory", READY)
    assert not await registry.record("one-more", "mallory", READY)
    assert await registry.record("t0", "mallory", READY)
    assert await registry.record("irc", "irc", READY)
