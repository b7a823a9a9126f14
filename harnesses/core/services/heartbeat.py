"""The heartbeat of a tendril: it reports itself to the agent server, with its key."""

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
    """Send the report of the tendril `name` every ten seconds, until cancelled. Returns when the
    server has no list of tendrils, as any other with an OpenAI API."""
    while True:
        try:
            await client.report(name, report())
        except RequestRejected as error:
            _log.debug("heartbeat.refused", status=error.status)
            return
        except ModelError:  # a server that is away is told when it is back
            pass
        await asyncio.sleep(_EVERY)
