"""Heartbeats: regular reports of a tendril to the agent server, with its key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from llm.client.client import AgentClient
from llm.client.response import Heartbeat
from llm.messages.errors import ModelError, RequestRejected

_EVERY = 10.0  # seconds; the server forgets a tendril after three that were missed

_log = structlog.get_logger()


async def send_heartbeats(client: AgentClient, name: str, report: Callable[[], Heartbeat]) -> None:
    """Send the report of the tendril `name` every ten seconds, until cancelled.

    Returns when the server rejects it: another server with an OpenAI API has no such endpoint.
    """
    while True:
        try:
            await client.report(name, report())
        except RequestRejected as error:
            _log.debug("heartbeat.refused", status=error.status)
            return
        except ModelError:  # the server is away: report again once it is back
            pass
        await asyncio.sleep(_EVERY)
