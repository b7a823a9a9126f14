"""One ask of an engine, from the moment it is let in."""

from __future__ import annotations

import time
from dataclasses import dataclass

from agent_server.admission.fair_queue import Request
from agent_server.admission.quota import Charge
from agent_server.engines.base import Chunk
from agent_server.usage import Usage
from agent_server.visit import Visit

SAYING = ("content", "reasoning_content", "tool_calls")
"""What of a delta people or programs wait for."""

NOTHING = Usage()


@dataclass(slots=True)
class Ask:
    """Who asks, and what the answer has brought so far; `variant` is the model that is asked for
    where the engine has several."""

    visit: Visit
    request: Request
    charge: Charge | None
    prompt: int
    variant: str | None = None
    pieces: int = 0
    first: float | None = None
    usage: Usage | None = None

    def note(self, chunk: Chunk) -> None:
        """Take note of a part of the answer."""
        if self.first is None and _says_something(chunk):
            self.first = time.monotonic()
        if isinstance(usage := chunk.get("usage"), dict):
            read = Usage.from_wire(usage)
            self.usage = read if self.usage is None else self.usage.beside(read)
        if chunk.get("choices"):
            self.pieces += 1

    def model(self, name: str) -> str:
        """What the model behind the engine `name` is called by those who ask for it."""
        return f"{name}:{self.variant}" if self.variant else name

    def used(self) -> Usage:
        """What it took; an estimate where the answer broke off, nothing where none came."""
        return self.usage or (Usage(self.prompt, self.pieces) if self.pieces else NOTHING)


def _says_something(chunk: Chunk) -> bool:
    return any(
        choice.get("text") or any((choice.get("delta") or {}).get(key) for key in SAYING)
        for choice in chunk.get("choices") or ()
    )
