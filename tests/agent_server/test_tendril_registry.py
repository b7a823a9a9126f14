"""The registry of tendrils: how long it keeps a report, and of whom."""

from __future__ import annotations

from agent_server.tendril_registry import (
    MAX_TENDRILS,
    REPORT_TIMEOUT,
    TendrilRegistry,
    TendrilReport,
)

READY = TendrilReport(state="ready")


def test_a_tendril_that_is_silent_for_long_is_gone_and_keys_are_apart() -> None:
    now = 0.0
    registry = TendrilRegistry(lambda: now)
    registry.record("irc", "irc", READY)
    now = REPORT_TIMEOUT / 2
    registry.record("irc", "mallory", TendrilReport(state="waiting"))
    assert [(each.key, each.state, each.seconds_ago) for each in registry.present()] == [
        ("irc", "ready", REPORT_TIMEOUT / 2),
        ("mallory", "waiting", 0),
    ]
    now = REPORT_TIMEOUT + 1
    assert [each.key for each in registry.present()] == ["mallory"]


def test_one_key_cannot_crowd_out_the_tendrils_of_others() -> None:
    registry = TendrilRegistry()
    for number in range(MAX_TENDRILS):
        assert registry.record(f"t{number}", "mallory", READY)
    assert not registry.record("one-more", "mallory", READY)
    assert registry.record("t0", "mallory", READY)
    assert registry.record("irc", "irc", READY)
