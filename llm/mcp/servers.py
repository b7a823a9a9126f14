"""The MCP servers of one tendril, as a source of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import structlog

from llm.mcp.settings import McpServerSettings, McpSettings
from llm.tools.toolbox import Tool, ToolSource
from terrarium.config import Config

if TYPE_CHECKING:
    from llm.mcp.connection import McpConnection

HOW_TO_INSTALL = "pip install 'terrarium-irc[mcp]'"

_log = structlog.get_logger()


class McpServers(ToolSource):
    """The tools of the connected servers of a tendril; `settings` are those of each by name."""

    def __init__(self) -> None:
        self.settings: Mapping[str, McpServerSettings] = {}
        self._running: dict[str, tuple[McpConnection, asyncio.Task[None]]] = {}
        self._configured = asyncio.Event()

    def configure(self, tendril: str, config: Config) -> None:
        """Use the servers of `config` that are meant for this tendril from now on.

        Those whose settings are the same stay connected. Raises ConfigError, changing nothing.
        """
        servers = config.section(McpSettings).servers
        self.settings = {name: each for name, each in servers.items() if tendril in each.tendrils}
        self._configured.set()

    def tools(self) -> Iterable[Tool]:
        """Yield the tools of all connected servers, in the order of the configuration."""
        for name in self.settings:
            if name in self._running:
                yield from self._running[name][0].tools

    def troubles(self) -> dict[str, str]:
        """Return why servers are not connected, by name: untrusted, as it may quote them."""
        if self.settings and find_spec("mcp") is None:
            return dict.fromkeys(self.settings, f"the SDK is not installed: {HOW_TO_INSTALL}")
        return {
            name: self._running[name][0].trouble
            for name in self.settings
            if name in self._running and self._running[name][0].trouble
        }

    async def run(self) -> None:
        """Keep the configured servers connected, until cancelled."""
        try:
            while True:
                await self._configured.wait()
                self._configured.clear()
                running = self._running.items()
                await self._end([n for n, (c, _) in running if self.settings.get(n) != c.settings])
                missing = [name for name in self.settings if name not in self._running]
                if missing and find_spec("mcp") is None:
                    _log.error("mcp.not_installed", servers=missing, fix=HOW_TO_INSTALL)
                    continue
                for name in missing:
                    from llm.mcp.connection import McpConnection  # the SDK, which is optional

                    connection = McpConnection(name, self.settings[name])
                    self._running[name] = connection, asyncio.create_task(connection.run())
        finally:
            await self._end(list(self._running))

    async def _end(self, names: Iterable[str]) -> None:
        ending = [self._running.pop(name)[1] for name in names]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
