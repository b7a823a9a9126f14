"""In-memory store of responses, for requests that continue from one of them.

A restart empties it, and the least recently used responses are evicted for new ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_server.http.responses import to_json

MAX_RESPONSES = 1000
MAX_BYTES = 64 * 1024 * 1024
"""Limits: the number of responses, and the bytes of all of them with their conversations."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, the chat messages up to and including it, and the session they belong to."""

    response: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    session: str

    @property
    def size(self) -> int:
        """The size in bytes, as JSON."""
        return len(to_json(self.response)) + len(to_json(self.messages))


class ResponseStore:
    """An LRU cache of responses by owner and id, so that no owner sees another's responses.

    At most `most` responses of `largest` bytes together.
    """

    def __init__(self, *, most: int = MAX_RESPONSES, largest: int = MAX_BYTES) -> None:
        self._most = most
        self._largest = largest
        self._kept: OrderedDict[tuple[str, str], tuple[StoredResponse, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self._kept)

    def save(self, owner: str, kept: StoredResponse) -> None:
        """Store a response, and evict others for it; one larger than the store is dropped."""
        size = kept.size
        self.delete(owner, kept.response["id"])
        if size > self._largest:
            return
        self._kept[owner, kept.response["id"]] = (kept, size)
        self._size += size
        while len(self._kept) > self._most or self._size > self._largest:
            _, (_, freed) = self._kept.popitem(last=False)
            self._size -= freed

    def get(self, owner: str, identity: str) -> StoredResponse | None:
        """Return a response and mark it as used; None if it is not stored."""
        found = self._kept.get((owner, identity))
        if found is None:
            return None
        self._kept.move_to_end((owner, identity))
        return found[0]

    def delete(self, owner: str, identity: str) -> bool:
        """Delete a response; return False if there is none."""
        found = self._kept.pop((owner, identity), None)
        if found is None:
            return False
        self._size -= found[1]
        return True
