"""The tool that reports the status of Terrarium's processes to a scheduled job."""

from __future__ import annotations

from pathlib import Path

from harnesses.core.tendril.status import reports
from llm.tools.toolbox import tool


class SystemTools:
    """Tools about the processes of one data folder."""

    def __init__(self, data: Path) -> None:
        self._data = data

    @tool(reads=True)
    async def system_status(self) -> str:
        """Tell how each process of Terrarium is, and its tokens of today."""
        # Without details: those name channels, and what is told here may be said to all.
        lines = (
            f"{each.name}: {each.state if each.is_fresh else 'gone'},"
            f" {each.tokens_today} tokens today"
            for each in reports(self._data)
        )
        return "\n".join(lines) or "nothing runs"
