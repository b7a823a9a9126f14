"""The connection to one MCP server, kept up, and the tools that the server currently lists."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import mcp_types as types
import structlog
from mcp import Client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from llm.mcp.foreign_tools import (
    MAX_TOOLS,
    ForeignArguments,
    fits,
    openai_schema,
    plain,
    result_text,
)
from llm.mcp.settings import McpServerSettings
from llm.mcp.transports import StderrTail, transport
from llm.tools.toolbox import IndeterminateToolError, Tool, ToolError, ToolOptions
from terrarium import __version__
from terrarium.backoff import Backoff

# Seconds until the tools are listed; the program may have to be fetched first.
_CONNECT_TIMEOUT = 60.0
_REQUEST_TIMEOUT = 20.0  # seconds for every request but a tool's
_MAX_CONCURRENT = 8  # concurrent tool calls
_MAX_PAGES = 20  # of a list of tools, against servers whose cursors never end
_LISTING_INTERVAL = 1.0  # seconds between two listings of the tools
_MAX_ERROR_LENGTH = 500  # characters of an error
_MAX_STDERR_LENGTH = 1_000  # the same, of the end of a program's standard error

_log = structlog.get_logger()


class McpConnection:
    """Keeps the server `name` connected, with exponential backoff, and holds its `tools`.

    A call while the server is away fails at once. `trouble` says why it is away; it is "" while it
    is connected or the reason is not yet known. It may quote the server: untrusted, on one line.
    """

    def __init__(self, name: str, settings: McpServerSettings) -> None:
        self.name = name
        self.settings = settings
        self.tools: tuple[Tool, ...] = ()
        self.trouble = ""
        self._stderr_tail = StderrTail()
        self._client: Client | None = None
        self._changed = asyncio.Event()  # the tools may have changed, or the connection ended
        self._ended = ""  # why the connection can no longer be used
        self._at_once = asyncio.Semaphore(_MAX_CONCURRENT)

    async def run(self) -> None:
        """Connect, and reconnect whenever the connection is lost, until cancelled."""
        backoff = Backoff(1.0, 300.0)
        while True:
            reason = await self._connect(backoff)
            # The SDK swallows a cancellation that arrives while it closes a broken connection.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError
            wait = backoff.delay()
            said = plain(self._stderr_tail.text, _MAX_STDERR_LENGTH)
            self.trouble = f"{reason}; its last words: {said}" if said else reason
            _log.warning("mcp.away", server=self.name, reason=reason, again_in=wait)
            await asyncio.sleep(wait)

    async def _connect(self, backoff: Backoff) -> str:
        """Hold one connection, following changes of the tools, until it ends; return why."""
        self._ended = ""
        self._changed.clear()

        def on_end(reason: str) -> None:
            self._ended = reason
            self._changed.set()

        async def on_message(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._changed.set()

        client = Client(
            transport(self.settings, on_end, self._stderr_tail),
            read_timeout_seconds=_REQUEST_TIMEOUT,
            message_handler=on_message,
            client_info=types.Implementation(name="terrarium", version=__version__),
            cache=None,  # `_list` must read from the server, not from the SDK's cache
        )
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT) as limit, client:
                await self._list(client)
                limit.reschedule(None)  # the limit is for connecting and the first listing
                backoff.mark_started()
                self._client, self.trouble = client, ""
                _log.info("mcp.connected", server=self.name, tools=len(self.tools))
                listening = asyncio.create_task(self._listen(client))
                try:
                    while not self._ended:
                        await self._changed.wait()
                        self._changed.clear()
                        if not self._ended:
                            await self._list(client)
                            # Notifications meanwhile cause one more listing, however many they are.
                            await asyncio.sleep(_LISTING_INTERVAL)
                finally:
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        except TimeoutError:
            return self._ended or f"no answer within {_CONNECT_TIMEOUT:g} seconds"
        except Exception as error:  # noqa: BLE001 -- whatever a foreign server makes the SDK raise
            first: BaseException = error
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            return self._ended or plain(str(first) or type(first).__name__, _MAX_ERROR_LENGTH)
        finally:
            self._client, self.tools = None, ()
        return self._ended

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the list of tools.

        This is needed from protocol version 2026-07-28 on; older servers notify unasked.
        """
        offered = client.server_capabilities.tools
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not is_modern or offered is None or not offered.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._changed.set()
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError) as error:
            _log.info("mcp.not_following", server=self.name, reason=type(error).__name__)

    async def _list(self, client: Client) -> None:
        """Read the list of tools, within the limits on its pages and tools. Raises MCPError."""
        found: dict[str, Tool] = {}
        left_out, cursor = 0, None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for each in page.tools:
                is_wanted = fits(each.name, self.settings.tools)
                schema = openai_schema(self.name, each) if is_wanted else None
                name = schema["function"]["name"] if schema else ""
                # Different names can become the same local name; the first one is offered.
                if schema is None or name in found or len(found) == MAX_TOOLS:
                    left_out += 1
                    continue
                # The server's own `readOnlyHint` is not trusted: a tool that only reads may run
                # repeatedly.
                reads = fits(each.name, self.settings.reads)
                options = ToolOptions(
                    reads=reads,
                    effect=not reads,
                    research=reads,
                    needs=self.settings.needs,
                    timeout=self.settings.timeout,
                )
                run = partial(self._call, each.name)
                found[name] = Tool(name, ForeignArguments, schema, run, options)
            cursor = page.next_cursor
            if cursor is None or len(found) == MAX_TOOLS:
                break
        self.tools = tuple(found.values())
        if left_out:
            _log.info("mcp.tools_left_out", server=self.name, offered=len(found), left_out=left_out)

    async def _call(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool of the server.

        Raises ToolError while the server is away. Any failure after that raises
        IndeterminateToolError, as the server may have done something nevertheless.
        """
        async with self._at_once:
            client = self._client
            if client is None:
                raise ToolError(f"the server {self.name} is away; do without it")
            try:
                # Longer than the toolbox allows, which ends the call at the configured timeout.
                result = await client.call_tool(
                    tool, arguments, read_timeout_seconds=2 * self.settings.timeout
                )
            except MCPError as error:
                self._changed.set()  # listing the tools shows whether the server is still there
                raise IndeterminateToolError(plain(error.message, _MAX_ERROR_LENGTH)) from error
            except Exception as error:
                self._changed.set()
                _log.warning("mcp.call_failed", server=self.name, reason=type(error).__name__)
                raise IndeterminateToolError(
                    f"the server {self.name} gave no usable answer"
                ) from error
        text = result_text(result)
        if result.is_error:
            raise IndeterminateToolError(plain(text, _MAX_ERROR_LENGTH))
        return text
