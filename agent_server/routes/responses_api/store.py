"""A store of responses, so that a request can follow one of them.

They are held in memory only: a restart forgets them, and the oldest make room for new ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_server.http.responses import to_json

MOST = 1000
LARGEST = 64 * 1024 * 1024
"""Responses, and bytes of all of them together with the conversations before them."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, the chat messages up to it and with it, and the session they belong to."""

    response: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    session: str

    @property
    def size(self) -> int:
        """Bytes as JSON."""
        return len(to_json(self.response)) + len(to_json(self.messages))


class ResponseStore:
    """Keeps the responses that were used last; one owner never sees another's."""

    def __init__(self, *, most: int = MOST, largest: int = LARGEST) -> None:
        self._most = most
        self._largest = largest
        self._kept: OrderedDict[tuple[str, str], tuple[StoredResponse, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self._kept)

    def save(self, owner: str, kept: StoredResponse) -> None:
        """Keep a response. One that is too large for the whole store is not kept."""
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
        """The response of that id."""
        found = self._kept.get((owner, identity))
        if found is None:
            return None
        self._kept.move_to_end((owner, identity))
        return found[0]

    def delete(self, owner: str, identity: str) -> bool:
        """Delete a response; returns False when there is none."""
        found = self._kept.pop((owner, identity), None)
        if found is None:
            return False
        self._size -= found[1]
        return True
