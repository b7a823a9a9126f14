"""The access of a tendril to the agent server: whether it is let in, told to the owner."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from harnesses.core.tendril.status import StatusFile
from llm.client.client import AgentClient
from llm.messages.errors import ModelError

_PAUSE = 5.0  # seconds between two looks

_log = structlog.get_logger()


class AccessMonitor:
    """Tells by the log and the status file why the agent server does not answer, when only the
    owner can mend it."""

    def __init__(self, client: AgentClient, status: StatusFile) -> None:
        self._client, self._status = client, status
        self._told = ""

    async def watch(self, model: str) -> None:
        """Look whether the server lets us in, until it does and whenever it did not; until
        cancelled."""
        was_let_in = False
        while True:
            with suppress(ModelError):  # one that is away is waited for
                if self._client.trouble or not was_let_in:
                    await self._client.model(model)
                    was_let_in = True
            self.report()
            await asyncio.sleep(_PAUSE)

    def report(self) -> None:
        """Tell what is known now; the log has it once."""
        trouble = self._client.trouble
        if trouble and trouble != self._told:
            _log.error("agent.not_usable", advice=trouble)
        self._told = trouble
        self._status.report_trouble(trouble, "agent server")
