"""Minimal tendril for tests of the base class.

`python -m tests.kit.small_tendril DATA AGENT_URL` runs it as a separate process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from llm.tools.toolbox import tool
from terrarium.clock import Clock
from terrarium.config import Config
from tests.kit.jobs import settled


class SmallTendril(Tendril):
    """Answers the files NAME.ask of the data folder, each in its own conversation, then waits."""

    name: ClassVar[str] = "small"

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self.is_ready = asyncio.Event()

    async def serve(self) -> None:
        """Answer the files into NAME.answer, then wait until cancelled."""
        self.status.ready("answering files")
        self.is_ready.set()
        for path in sorted(self.config.data.glob("*.ask")):
            result = await self.ask(path.read_text(), conversation=path.stem)
            path.with_suffix(".answer").write_text(result.text)
        await asyncio.Event().wait()

    async def ask(
        self,
        text: str = "How many cups?",
        who: str = "ada",
        conversation: str = "kitchen",
        **more: Any,
    ) -> TurnResult:
        """Return the result of a turn; `more` are other fields of its request."""
        return await self.turn(TurnRequest(conversation=conversation, who=who, text=text, **more))

    @asynccontextmanager
    async def living(self) -> AsyncIterator[SmallTendril]:
        """Run the tendril, ready to be asked, until the end of the context."""
        running = asyncio.create_task(self.run())
        try:
            await self.is_ready.wait()
            yield self
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def settled(self) -> None:
        """Wait until all due jobs are finished."""
        await settled(self._worker, self.jobs)

    @tool
    async def cups(self) -> int:
        """Count the cups."""
        return 7
