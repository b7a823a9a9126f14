"""The store of responses: its limits, and whose responses it returns."""

from __future__ import annotations

from agent_server.response_store import ResponseStore, StoredResponse


async def test_the_store_forgets_what_was_used_longest_ago() -> None:
    store = ResponseStore(most=2)
    for name in ("a", "b"):
        await store.save("irc", stored(name))
    assert await store.get("irc", "a") is not None
    await store.save("irc", stored("c"))
    assert await present(store, "abc") == "ac"


async def test_the_store_is_bounded_in_bytes() -> None:
    size = stored("a").size
    store = ResponseStore(largest=2 * size)
    for name in ("a", "b", "c"):
        await store.save("irc", stored(name))
    assert await present(store, "abc") == "bc"
    await store.save("irc", stored("d", b"long" * size))
    assert await present(store, "bcd") == "bc"
    assert await store.delete("irc", "b")
    await store.save("irc", stored("e"))
    assert await present(store, "ce") == "ce"
    await store.save("irc", stored("c"))
    assert await present(store, "ce") == "ce"


async def present(store: ResponseStore, names: str) -> str:
    """Return those of the names that are stored."""
    found = [name for name in names if await store.get("irc", name)]
    return "".join(found)


def stored(name: str, text: bytes = b"") -> StoredResponse:
    return StoredResponse(name, b'{"output":"%s"}' % text, b"[]", "session")
