"""The connection to one MCP server, kept up, and the tools that the server currently lists.

All that a server sends is untrusted. What is made of it is small and well formed: names that the
OpenAI API allows and that none of our tools has, schemas with only the keywords that models need,
texts of bounded length with our tags escaped. `pattern` and the like are dropped, as they are code
for a regular expression engine; the server validates its arguments itself.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from math import isfinite
from typing import Any

import mcp_types as types
import structlog
from mcp import Client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict

from llm.mcp.settings import McpServerSettings
from llm.mcp.transports import StderrTail, transport
from llm.messages.message import escape_tags
from llm.tools.toolbox import (
    MCP_SEPARATOR,
    IndeterminateToolError,
    Tool,
    ToolError,
    ToolOptions,
)
from terrarium import __version__
from terrarium.clock import Backoff
from terrarium.supervision import root_cause

MAX_TOOLS = 64
"""The most tools of one server that are offered; each costs tokens in every prompt."""

MAX_SCHEMA_LENGTH = 8_000
"""The most characters of a tool's whole description, as JSON."""

_MAX_NAME_LENGTH = 64  # characters, the limit of the OpenAI API
_MAX_DESCRIPTION_LENGTH = 600
_MAX_HINT_LENGTH = 200  # of one parameter
_MAX_DEPTH = 8
_MAX_PROPERTIES = 64
_MAX_CHOICES = 100
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_PROPERTY = re.compile(r"[\w.$-]{1,64}", re.ASCII)
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_BLANKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Seconds until the tools are listed; the program may have to be fetched first.
_CONNECT_TIMEOUT = 60.0
_REQUEST_TIMEOUT = 20.0  # seconds for every request but a tool's
_MAX_CONCURRENT = 8  # concurrent tool calls
_MAX_PAGES = 20  # of a list of tools, against servers whose cursors never end
_LISTING_INTERVAL = 1.0  # seconds between two listings of the tools
_MAX_ERROR_LENGTH = 500  # characters of an error
_MAX_STDERR_LENGTH = 1_000  # the same, of the end of a program's standard error

_log = structlog.get_logger()


class ForeignArguments(BaseModel):
    """Any JSON object; the server validates it."""

    model_config = ConfigDict(extra="allow")


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
            first = root_cause(error)
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


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a tool's name matches one of the glob patterns of the configuration."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def openai_schema(server: str, tool: types.Tool) -> dict[str, Any] | None:
    """Return a tool in the format of OpenAI's `tools` field, None if that is too large."""
    said = plain(tool.description or tool.title or "", _MAX_DESCRIPTION_LENGTH)
    definitions = {
        f"#/{where}/{name}": value
        for where in ("$defs", "definitions")
        if isinstance(tool.input_schema.get(where), Mapping)
        for name, value in tool.input_schema[where].items()
    }
    clean = _clean(tool.input_schema, definitions, _MAX_DEPTH)
    parameters = {"properties": {}, **clean, "type": "object"}
    function = {
        "name": f"{server}{MCP_SEPARATOR}{_UNFIT.sub('_', tool.name)}"[:_MAX_NAME_LENGTH],
        "description": f"{said} (a tool of the server {server})".strip(),
        "parameters": parameters,
    }
    schema = {"type": "function", "function": function}
    return schema if len(json.dumps(schema, ensure_ascii=False)) <= MAX_SCHEMA_LENGTH else None


def plain(text: str, most: int) -> str:
    """Return foreign text on one line, cut to `most` characters and with our tags escaped."""
    # Cut a first time before any work on a huge text; "replace" is for lone surrogates, which JSON
    # can hold and UTF-8 cannot.
    encodable = text[: 4 * most].encode(errors="replace").decode()
    line = " ".join(_BLANKS.sub(" ", encodable).split())
    return escape_tags(line if len(line) <= most else f"{line[:most]}...")


def _clean(schema: object, definitions: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return the part of a JSON schema that tells a model what to write: `depth` levels of it, with
    references within the schema resolved."""
    if not isinstance(schema, Mapping) or depth == 0:
        return {}
    if (reference := schema.get("$ref")) is not None:
        target = definitions.get(reference) if isinstance(reference, str) else None
        # A reference costs a level too, which ends recursive schemas.
        return _clean(target, definitions, depth - 1)
    clean: dict[str, Any] = {}
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        clean["type"] = kind
    elif isinstance(kind, list) and kind and all(each in _TYPES for each in map(str, kind)):
        clean["anyOf"] = [{"type": each} for each in dict.fromkeys(map(str, kind))]
    if isinstance(text := schema.get("description"), str) and text:
        clean["description"] = plain(text, _MAX_HINT_LENGTH)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    is_short = isinstance(choices, list) and 0 < len(choices) <= _MAX_CHOICES
    if is_short and (sound := [each for each in choices if _is_sound(each)]):
        clean["enum"] = sound
    for bound in ("minimum", "maximum"):
        value = schema.get(bound)
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            clean[bound] = value
    if isinstance(properties := schema.get("properties"), Mapping):
        fitting = (name for name in properties if _PROPERTY.fullmatch(name))
        names = list(islice(fitting, _MAX_PROPERTIES))
        clean["properties"] = {
            name: _clean(properties[name], definitions, depth - 1) for name in names
        }
        required = schema.get("required")
        known = [name for name in names if isinstance(required, list) and name in required]
        clean |= {"required": known} if known else {}
    if isinstance(items := schema.get("items"), Mapping):
        clean["items"] = _clean(items, definitions, depth - 1)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list):
            clean["anyOf"] = [_clean(each, definitions, depth - 1) for each in choices[:8]]
    return clean


def _is_sound(choice: object) -> bool:
    """Return whether a model may be offered an enum value: a finite number, a short text that
    `plain` does not change, or null."""
    if isinstance(choice, str):
        return len(choice) <= _MAX_HINT_LENGTH and plain(choice, _MAX_HINT_LENGTH) == choice
    return choice is None or (isinstance(choice, int | float) and isfinite(choice))


def result_text(result: types.CallToolResult) -> str:
    """Return a result as text; content of other types is only named."""
    parts = []
    for block in result.content:
        match block:
            case types.TextContent():
                parts.append(block.text)
            case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
                parts.append(resource.text)
            case types.ResourceLink():
                parts.append(f"[{plain(block.uri, _MAX_HINT_LENGTH)}]")
            case _:
                parts.append(f"[{block.type}, which cannot be shown]")
    if not any(parts) and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(filter(None, parts)) or "(no text)"
    return text.encode(errors="replace").decode()
