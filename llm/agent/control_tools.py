"""Tools by which a model steers its own run; they have no effect beyond it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from llm.agent.outcome import Deferral
from llm.tools.toolbox import tool

Reason = Annotated[str, Field(max_length=300, description="why, in a few words")]


class EscalateTool:
    """Offered where there is a model that knows more."""

    def __init__(self) -> None:
        self.is_requested = False

    @tool(quiet=True)
    async def escalate(self, reason: Reason) -> str:
        """Hand a question that is too hard for you to a model that knows more."""
        self.is_requested = True
        return f"handed on: {reason}"


class DeferTool:
    """Offered where nobody waits for an answer."""

    def __init__(self) -> None:
        self.deferral: Deferral | None = None

    @tool(quiet=True)
    async def defer(
        self,
        signal: Annotated[str, Field(max_length=64, description="what it is about")],
        hours: Annotated[float, Field(gt=0, le=24, description="how long to wait")],
        reason: Reason,
    ) -> str:
        """Say nothing now, and look at it again later, or earlier when it has grown."""
        self.deferral = Deferral(signal, hours, reason)
        return "deferred"
