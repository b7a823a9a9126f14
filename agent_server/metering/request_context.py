"""One HTTP request while it is answered: who sent it, and what became of it."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from storage.usage.api_keys import Key
from terrarium.usage import TokenUsage

ANYBODY = Key("anonymous")
"""Who sends requests to a server that has no keys."""

ADMIN = Key("admin")
"""Who sends requests with `[server] admin_key`."""


@dataclass(slots=True)
class RequestContext:
    """Times are seconds of the monotonic clock, `size` is the length of the body in bytes.

    `attempts` counts how often the engine was asked: twice where an answer is made in two parts.
    """

    key: Key = ANYBODY
    background: bool = False
    size: int = 0
    began: float = field(default_factory=time.monotonic)
    attempts: int = 0
    queue_seconds: float = 0.0
    usage: TokenUsage | None = None

    def log_fields(self) -> dict[str, Any]:
        """For the log: who, and what it took. Seconds are rounded to milliseconds."""
        priority = "background" if self.background else "interactive"
        said: dict[str, Any] = {"tendril": self.key.name, "priority": priority}
        if self.usage is not None:
            said |= {
                "waited": round(self.queue_seconds, 3),
                "prompt": self.usage.prompt,
                "completion": self.usage.completion,
                "cached": self.usage.cached,
            }
        return said


visiting: ContextVar[RequestContext | None] = ContextVar("visiting", default=None)


def current_request() -> RequestContext:
    """The request that is being answered here, or one of nobody's."""
    return visiting.get() or RequestContext()
