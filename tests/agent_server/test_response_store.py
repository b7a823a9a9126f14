"""The store of responses: its limits, and whose responses it returns."""

from __future__ import annotations

from agent_server.response_store import ResponseStore, StoredResponse


def test_the_store_forgets_what_was_used_longest_ago() -> None:
    store = ResponseStore(most=2)
    for name in ("a", "b"):
        store.save("irc", stored(name))
    assert store.get("irc", "a") is not None
    store.save("irc", stored("c"))
    assert present(store, "abc") == "ac"


def test_the_store_is_bounded_in_bytes() -> None:
    size = stored("a").size
    store = ResponseStore(largest=2 * size)
    for name in ("a", "b", "c"):
        store.save("irc", stored(name))
    assert present(store, "abc") == "bc"
    store.save("irc", stored("d", b"long" * size))
    assert present(store, "bcd") == "bc"
    assert store.delete("irc", "b")
    store.save("irc", stored("e"))
    assert present(store, "ce") == "ce"
    store.save("irc", stored("c"))
    assert present(store, "ce") == "ce"


def present(store: ResponseStore, names: str) -> str:
    """Return those of the names that are stored."""
    found = [name for name in names if store.get("irc", name)]
    return "".join(found)


def stored(name: str, text: bytes = b"") -> StoredResponse:
    return StoredResponse(name, b'{"output":"%s"}' % text, b"[]", "session")
