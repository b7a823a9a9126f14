"""Responses and tendrils' reports in the process that all servers share."""

from __future__ import annotations

from pathlib import Path

from agent_server.ray.shared_state import SharedState
from agent_server.response_store import MAX_RESPONSES, StoredResponse
from agent_server.tendril_registry import MAX_TENDRILS, TendrilReport
from terrarium.config import Config

READY = TendrilReport("ready")


def shared() -> SharedState:
    return SharedState(Config({}, None, Path("data")))


def stored(name: str) -> StoredResponse:
    return StoredResponse(name, b"{}", b"[]", "session")


async def test_a_response_belongs_to_its_key_until_it_is_deleted() -> None:
    state = shared()
    await state.save_response("irc", stored("a"))
    assert await state.get_response("irc", "a") == stored("a")
    assert await state.get_response("web", "a") is None
    assert not await state.delete_response("web", "a")
    assert await state.delete_response("irc", "a")
    assert await state.get_response("irc", "a") is None


async def test_a_save_that_is_repeated_stores_one_response() -> None:
    state = shared()
    for number in range(MAX_RESPONSES):
        await state.save_response("irc", stored(str(number)))
    await state.save_response("irc", stored("0"))
    assert await state.get_response("irc", "1") is not None
    await state.save_response("irc", stored("one more"))
    assert await state.get_response("irc", "2") is None


async def test_a_successor_has_no_responses_and_no_tendrils() -> None:
    predecessor, successor = shared(), shared()
    await predecessor.save_response("irc", stored("a"))
    await predecessor.record_tendril("irc", "irc", READY)
    assert await successor.get_response("irc", "a") is None
    assert await successor.present_tendrils() == []


async def test_a_key_has_its_tendrils_once_whichever_server_they_report_to() -> None:
    state = shared()
    for number in range(MAX_TENDRILS):
        assert await state.record_tendril(f"t{number}", "mallory", READY)
    assert not await state.record_tendril("one-more", "mallory", READY)
    assert await state.record_tendril("irc", "irc", READY)
    listed = await state.present_tendrils()
    assert len(listed) == MAX_TENDRILS + 1
    assert (listed[0].name, listed[0].key, listed[0].report) == ("irc", "irc", READY)
