"""Metrics of a tendril, and the heartbeats that bring them to the agent server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import structlog

from llm.client.client import AgentClient, Heartbeat
from llm.messages.errors import ModelError, RequestRejected

MAX_METRICS = 50
"""The most counters of one tendril, and the most gauges."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_INTERVAL = 10.0  # seconds; the server forgets a tendril after three that were missed
_NO_ENDPOINT = frozenset({404, 405})  # the answers of other servers with an OpenAI API

_log = structlog.get_logger()


class TendrilMetrics:
    """The counters and gauges that a tendril defines, for `/metrics` of the agent server.

    Every user of the server's machine can read `/metrics`, so neither a name nor a value may reveal
    anything private.
    """

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}

    def count(self, name: str, amount: float = 1) -> None:
        """Add a non-negative amount to a counter, which starts at 0 in each process. Raises
        ValueError for an invalid name, too many names, or a negative amount."""
        if amount < 0:
            raise ValueError(f"the counter {name} only grows; use set for a number that falls")
        self._check(name, self.counters)
        self.counters[name] = self.counters.get(name, 0) + amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge. Raises ValueError for an invalid name or too many names."""
        self._check(name, self.gauges)
        self.gauges[name] = value

    def _check(self, name: str, known: dict[str, float]) -> None:
        if name in known:
            return
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not the name of a metric: use lower-case letters, digits and _"
            )
        if len(known) >= MAX_METRICS:
            raise ValueError(f"a tendril has at most {MAX_METRICS} counters and as many gauges")


async def send_heartbeats(client: AgentClient, name: str, report: Callable[[], Heartbeat]) -> None:
    """Send the report of the tendril `name` every ten seconds, until cancelled.

    Returns when the server has no such endpoint. Any other rejection may end by itself, as when the
    key has reported too many tendrils, so the next report is sent all the same.
    """
    logged = 0  # the status of the last rejection, so that a lasting one is logged once
    while True:
        try:
            await client.send_heartbeat(name, report())
        except RequestRejected as error:
            if error.status in _NO_ENDPOINT:
                _log.debug("heartbeat.refused", status=error.status)
                return
            if error.status != logged:
                logged = error.status
                _log.warning("heartbeat.refused", status=error.status, reason=str(error))
        except ModelError:  # away, or it refuses our key: `client.trouble` has the latter
            pass
        await asyncio.sleep(_INTERVAL)
