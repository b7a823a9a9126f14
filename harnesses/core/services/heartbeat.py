"""Heartbeats: regular reports of a tendril to the agent server, with its key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from llm.client.client import AgentClient
from llm.client.response import Heartbeat
from llm.messages.errors import ModelError, RequestRejected

_INTERVAL = 10.0  # seconds; the server forgets a tendril after three that were missed
_NO_ENDPOINT = frozenset({404, 405})  # the answers of other servers with an OpenAI API

_log = structlog.get_logger()


async def send_heartbeats(client: AgentClient, name: str, report: Callable[[], Heartbeat]) -> None:
    """Send the report of the tendril `name` every ten seconds, until cancelled.

    Returns when the server has no such endpoint. Any other rejection may end by itself, as when the
    key has reported too many tendrils, so the next report is sent all the same.
    """
    logged = 0  # the status of the last rejection, so that a lasting one is logged once
    while True:
        try:
            await client.report(name, report())
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
