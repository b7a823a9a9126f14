"""One base URL of an engine, and whether it is worth asking."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import structlog

from llm.http.connections import Connections

log = structlog.get_logger()

BREAK_AFTER = 3
"""Failures in a row after which an upstream is asked no more until a health check passes."""


@dataclass(slots=True, eq=False)
class Upstream:
    """A circuit breaker: `down` while requests do not go there. `asking` counts them."""

    url: str
    connections: Connections
    failures: int = 0
    down: bool = False
    asking: int = 0

    def worked(self) -> None:
        """Note that it answered."""
        if self.down:
            log.info("upstream.up", url=self.url)
        self.failures, self.down = 0, False

    def failed(self, reason: str, *, gone: bool = False) -> None:
        """Note that it did not; `gone` when it refuses connections, which once is enough."""
        self.failures += 1
        if not self.down and (gone or self.failures >= BREAK_AFTER):
            self.down = True
            log.warning("upstream.down", url=self.url, reason=reason)

    def rank(self, session: str) -> bytes:
        """Where a session prefers to be: of several upstreams the one that ranks first.

        Rendezvous hashing: when an upstream goes or comes, the others keep their sessions.
        """
        return hashlib.blake2b(f"{session}\0{self.url}".encode(), digest_size=8).digest()
