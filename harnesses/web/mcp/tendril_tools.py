"""The tools of other tendrils for MCP clients; each runs in the process of its tendril."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harnesses.core.errors import PeerRefused
from harnesses.core.services.peers import OfferedTool, Origin, PeerQuestion, PeerService
from harnesses.core.tendril.status import ProcessState, reports
from llm.tools.toolbox import Tool, ToolError, ToolOptions, ToolSource

_ROUND_TRIP = 5.0  # seconds beyond the timeout of a tool, for the round trip to its tendril


class _AnyArguments(BaseModel):
    """Any JSON object; the tendril that runs the tool validates it."""

    model_config = ConfigDict(extra="allow")


class TendrilTools(ToolSource):
    """The tools of all running tendrils but `own`, named `TENDRIL_TOOL`, called for `origin`.

    `own` is the tendril that offers them here; `data` is the folder of the status files.
    """

    def __init__(self, peers: PeerService, own: str, data: Path, origin: Origin) -> None:
        self._peers, self._own, self._data, self._origin = peers, own, data, origin

    def tools(self) -> Iterable[Tool]:
        """Yield the tools of the tendrils that are ready at the moment."""
        for report in reports(self._data):
            is_there = report.is_fresh and report.state is ProcessState.READY
            for offered in report.mcp_tools if is_there and report.name != self._own else ():
                found = OfferedTool.model_validate(offered)
                own_name = str(found.function["name"])
                function = {**found.function, "name": f"{report.name}_{own_name}"}
                # The timeouts are nested, so that the innermost one gives the reason: the tool's
                # own in its tendril, that of the call, that of this tool.
                seconds = found.timeout + _ROUND_TRIP
                yield Tool(
                    function["name"],
                    _AnyArguments,
                    {"type": "function", "function": function},
                    partial(self._call, report.name, own_name, seconds),
                    ToolOptions(reads=found.reads, timeout=seconds + _ROUND_TRIP, mcp=True),
                )

    async def _call(self, tendril: str, tool: str, seconds: float, /, **arguments: Any) -> object:
        """Have a tendril run one of its tools, and return the result. Raises ToolError."""
        call = PeerQuestion(json.dumps(arguments), self._origin, tool)
        try:
            answer = await self._peers.call(tendril, call, seconds)
        except PeerRefused as error:
            raise ToolError(str(error)) from error
        if not answer.ok:
            raise ToolError(answer.text)
        result: object = json.loads(answer.text)
        return result
