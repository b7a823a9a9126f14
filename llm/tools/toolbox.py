"""Tools: typed async functions with a docstring, whose signature is both schema and validation."""

from __future__ import annotations

import asyncio
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any, NewType, TypedDict, TypeVar, Unpack, get_type_hints, overload

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_jsonable_python

from llm.messages.image import Image
from llm.messages.message import escape_tags

FOREIGN = "__"
"""Stands in the names of tools of MCP servers, after the server's, and in no name of ours."""

_MARK = "__terrarium_tool__"
_LONG = 3_000  # characters of a result; a longer one is cut
_SHORT = 2_500

EffectKey = NewType("EffectKey", str)
"""The name of one effect of one run, the same when the run is repeated after a crash.

A tool that is marked `keyed=True` has a parameter of this type, which the model does not see. Put
into a table where it must be unique, the key makes the effect happen once.
"""

NO_KEY = EffectKey("")
"""The key of a call that has no effect."""

F = TypeVar("F", bound=Callable[..., Awaitable[object]])

_log = structlog.get_logger()


class ToolError(Exception):
    """The tool could not do its work; the message is given to the model."""

    unsure = False


class UnsureToolError(ToolError):
    """The tool failed in a way that leaves open what it has done."""

    unsure = True


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The properties of a tool.

    `reads`: it only reads, so that several may run at once. `effect`: it changes something beyond
    the run, so it runs once for the same arguments, whatever happens. `keyed`: an effect that is
    idempotent by its parameter of type `EffectKey`, so that it may be repeated with the same key.
    `needs`: the right that the person who asks must have at the moment when it runs, whatever the
    model was talked into. `speaks`: it is a message to people. `quiet`: it only writes the model's
    own notes. `research`: it looks things up, which may take more uses. `timeout`, in seconds,
    takes the place of the default. `mcp`: MCP clients of the web tendril may call it, too; they
    have no rights, so it must not tell what they may not read.
    """

    reads: bool = False
    effect: bool = False
    keyed: bool = False
    needs: str = ""
    speaks: bool = False
    quiet: bool = False
    research: bool = False
    timeout: float | None = None
    mcp: bool = False


class ToolKeywords(TypedDict, total=False):
    """The keyword arguments of `tool`: those of `ToolOptions`."""

    reads: bool
    effect: bool
    keyed: bool
    needs: str
    speaks: bool
    quiet: bool
    research: bool
    timeout: float | None
    mcp: bool


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    arguments: type[BaseModel]
    schema: dict[str, Any]
    """The tool as OpenAI's `tools` field describes it."""
    run: Callable[..., Awaitable[object]]
    options: ToolOptions = ToolOptions()
    key_parameter: str = ""
    """The parameter that is given the `EffectKey`, if there is one."""


@dataclass(frozen=True, slots=True)
class ImageResult:
    """The result of a tool that has found an image: a text about it, and the image, which is shown
    to a model that can see."""

    text: str
    image: Image


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call as the model reads it, perhaps with an image; `ok` if the tool did its
    work, `unsure` if it failed in a way that leaves open what it has done."""

    text: str
    ok: bool
    unsure: bool = False
    image: Image | None = None


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(**options: Unpack[ToolKeywords]) -> Callable[[F], F]: ...


def tool(function: F | None = None, /, **options: Unpack[ToolKeywords]) -> F | Callable[[F], F]:
    """Mark an async method or function as a tool; the keywords are those of `ToolOptions`.

    Its docstring tells the model what it does; its annotated parameters, by name, are its
    arguments. It returns text, or anything that JSON can hold, and raises `ToolError` with
    words for the model when it cannot. Raises TypeError for a function that cannot be a tool.
    """

    def mark(function: F) -> F:
        _require_usable(function)
        setattr(function, _MARK, ToolOptions(**options))
        return function

    return mark(function) if function else mark


class ToolSource(ABC):
    """An owner of tools that are not methods of ours, and that may change from turn to turn."""

    @abstractmethod
    def tools(self) -> Iterable[Tool]:
        """Return the tools that there are at this moment."""


Rights = Callable[[], Collection[str]]
"""Returns the rights that the person who asks has at this moment."""


class Toolbox:
    """The tools of one turn, by name; of two that have the same, the first."""

    def __init__(self, tools: Iterable[Tool], rights: Rights = frozenset) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            self._tools.setdefault(item.name, item)
        self._rights = rights

    @classmethod
    def from_owners(cls, *owners: object, rights: Rights = frozenset) -> Toolbox:
        """Collect the marked methods of each owner; an owner may itself be a marked function, or a
        `ToolSource`."""
        return cls((tool for owner in owners for tool in _owned_tools(owner)), rights)

    def only(self, names: Collection[str] | None) -> Toolbox:
        """Return those of the tools that have one of these names; None: all."""
        if names is None:
            return self
        tools = (item for name, item in self._tools.items() if name in names)
        return Toolbox(tools, self._rights)

    def for_mcp(self) -> Toolbox:
        """Return those of the tools that MCP clients may call."""
        return Toolbox((item for item in self._tools.values() if item.options.mcp), self._rights)

    def names(self) -> Collection[str]:
        """Return the names of the tools."""
        return self._tools.keys()

    def plus(self, *owners: object) -> Toolbox:
        """Return these tools and those of more owners."""
        more = Toolbox.from_owners(*owners)._tools.values()
        return Toolbox([*self._tools.values(), *more], self._rights)

    def __bool__(self) -> bool:
        return bool(self._tools)

    def schemas(self) -> list[dict[str, Any]]:
        """Return all tools, as OpenAI's `tools` field lists them."""
        return [item.schema for item in self._tools.values()]

    def options(self, name: str) -> ToolOptions:
        """Return the options of a tool; the defaults for one that does not exist."""
        item = self._tools.get(name)
        return item.options if item else ToolOptions()

    async def call(
        self,
        name: str,
        arguments: str,
        timeout: float,  # noqa: ASYNC109 -- the result says that time was up
        key: EffectKey = NO_KEY,
    ) -> ToolResult:
        """Run a tool with JSON `arguments`, for at most `timeout` seconds.

        Never raises: a name that does not exist, arguments that do not fit, a tool that fails
        or takes too long, each is a result that says so.
        """
        try:
            result = await self.run(name, arguments, timeout, key)
        except ToolError as error:
            return error_result(name, str(error), unsure=error.unsure)
        image = result.image if isinstance(result, ImageResult) else None
        return ToolResult(render_result(name, text_of(result)), ok=True, image=image)

    async def run(
        self,
        name: str,
        arguments: str,
        timeout: float,  # noqa: ASYNC109 -- the error says that time was up
        key: EffectKey = NO_KEY,
    ) -> object:
        """Run a tool as `call` does, and return its result as a value that JSON has, or as an
        `ImageResult`. Raises ToolError, and nothing else."""
        item = self._tools.get(name)
        if item is None:
            raise ToolError(f"no such tool; there are: {', '.join(self._tools)}")
        if item.options.needs and item.options.needs not in self._rights():
            raise ToolError("not done: the person who asks you may not have that done")
        try:
            values = item.arguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            raise ToolError(_reasons(error)) from error
        try:
            return await _run(item, values, timeout, key)
        except ToolError:
            raise
        except TimeoutError as error:
            raise UnsureToolError(f"no result within {timeout:g} seconds") from error
        except Exception as error:
            # Tools are anybody's code; who called reads that it failed.
            _log.exception("tool.failed", tool=name)
            raise UnsureToolError("the tool failed") from error


def error_result(name: str, reason: str, *, unsure: bool = False) -> ToolResult:
    """Make the result of a call that failed, with the reason for the model."""
    return ToolResult(render_result(name, f"error: {reason}"), ok=False, unsure=unsure)


def render_result(name: str, text: str) -> str:
    """Render a result as the model reads it: marked as data, its length bounded."""
    if len(text) > _LONG:
        text = text[:_SHORT] + "...[truncated]"
    label = "".join(c for c in name if c.isalnum() or c in "_-")[:64]
    return f'<tool_result tool="{label}">\n{escape_tags(text)}\n</tool_result>'


def tools_in(module: ModuleType) -> list[Callable[..., Awaitable[object]]]:
    """Return the functions that a module itself marks as tools, in order."""
    own = (each for each in vars(module).values() if getattr(each, _MARK, None))
    return [each for each in own if each.__module__ == module.__name__]


def _owned_tools(owner: object) -> Iterable[Tool]:
    """Return the tools of an owner."""
    return owner.tools() if isinstance(owner, ToolSource) else map(describe, tools_of(owner))


def tools_of(owner: object) -> Iterable[Callable[..., Awaitable[object]]]:
    """Return the marked methods of an object, or a marked function itself."""
    if _is_tool(owner) and callable(owner):
        return [owner]
    kind: Any = type(owner)
    return [getattr(owner, name) for name in _marked_names(kind)]


@cache
def _marked_names(kind: type[Any]) -> list[str]:
    methods = inspect.getmembers(kind, inspect.iscoroutinefunction)
    return [name for name, method in methods if _is_tool(method)]


def _is_tool(thing: object) -> bool:
    return isinstance(getattr(thing, _MARK, None), ToolOptions)


def _require_usable(function: Callable[..., object]) -> None:
    name = getattr(function, "__qualname__", repr(function))
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"@tool {name}: write it as `async def`")
    if FOREIGN in function.__name__.strip("_"):
        raise TypeError(f"@tool {name}: names with {FOREIGN} belong to the tools of MCP servers")
    if not inspect.getdoc(function):
        raise TypeError(f"@tool {name}: write a docstring; it tells the model what the tool does")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"@tool {name}: name each parameter; {parameter} has no schema")
        if parameter.annotation is parameter.empty and parameter.name != "self":
            raise TypeError(f"@tool {name}: give the parameter {parameter.name} a type")


def describe(function: Callable[..., Awaitable[object]], more: str = "") -> Tool:
    """Make the tool of a marked function or bound method; `more` ends what the model is told of
    it."""
    found = replace(_read(getattr(function, "__func__", function)), run=function)
    if not more:
        return found
    told = found.schema["function"]
    described = {**told, "description": f"{told['description']}\n{more}"}
    return replace(found, schema={**found.schema, "function": described})


@cache
def _read(function: Callable[..., Awaitable[object]]) -> Tool:
    """Make the tool of a plain function: once, as building the model of its arguments is slow."""
    name = getattr(function, "__name__", "")
    options: ToolOptions = getattr(function, _MARK)
    hints = get_type_hints(function, include_extras=True)
    key_parameter = next((each for each, hint in hints.items() if hint is EffectKey), "")
    if bool(key_parameter) != (options.effect and options.keyed):
        raise TypeError(
            f"@tool {name}: effect=True, keyed=True and a parameter of type EffectKey go together"
        )
    fields: dict[str, Any] = {
        parameter.name: (
            hints[parameter.name],
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", key_parameter)
    }
    model = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
    described = {"name": name, "description": inspect.getdoc(function) or ""}
    parameters = model.model_json_schema()
    schema = {"type": "function", "function": {**described, "parameters": parameters}}
    return Tool(name, model, schema, function, options, key_parameter)


async def _run(item: Tool, values: BaseModel, limit: float, key: EffectKey) -> object:
    """Run a tool; return its result as a value that JSON has. Raises whatever the tool raises."""
    given: dict[str, Any] = dict(values)
    if item.key_parameter:
        given[item.key_parameter] = key
    async with asyncio.timeout(limit):
        result = await item.run(**given)
    return result if isinstance(result, ImageResult) else to_jsonable_python(result)


def text_of(result: object) -> str:
    """Return the result of `Toolbox.run` as text: JSON, unless it is text."""
    if isinstance(result, ImageResult):
        return result.text
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _reasons(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
        for problem in problems
    )
