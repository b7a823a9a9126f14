"""Store of responses in memory, for requests that continue from one of them.

A restart of its process empties it, and the least recently used responses are evicted for new ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MAX_RESPONSES = 1000
MAX_BYTES = 64 * 1024 * 1024
"""Limits: the number of responses, and the bytes of all of them with their conversations."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, the chat messages up to and including it, and the session they belong to.

    `response` and `messages` are JSON. As text they take the memory that is counted.
    """

    id: str
    response: bytes
    messages: bytes
    session: str

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.response) + len(self.messages)


class ResponseStore:
    """An LRU cache of responses by owner and id; no owner sees another's.

    At most `most` responses of `largest` bytes together.
    """

    def __init__(self, *, most: int = MAX_RESPONSES, largest: int = MAX_BYTES) -> None:
        self._most = most
        self._largest = largest
        self._stored: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._size = 0

    def save(self, owner: str, stored: StoredResponse) -> None:
        """Store a response, and evict others for it; one larger than the store is dropped."""
        self.delete(owner, stored.id)
        if stored.size > self._largest:
            return
        self._stored[owner, stored.id] = stored
        self._size += stored.size
        while len(self._stored) > self._most or self._size > self._largest:
            _, evicted = self._stored.popitem(last=False)
            self._size -= evicted.size

    def get(self, owner: str, identity: str) -> StoredResponse | None:
        """Return a response and mark it as used; None if it is not stored."""
        found = self._stored.get((owner, identity))
        if found is not None:
            self._stored.move_to_end((owner, identity))
        return found

    def delete(self, owner: str, identity: str) -> bool:
        """Delete a response; return False if there is none."""
        deleted = self._stored.pop((owner, identity), None)
        if deleted is None:
            return False
        self._size -= deleted.size
        return True
