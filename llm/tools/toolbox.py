"""Tools: typed async functions with a docstring. The signature is the schema and the check."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, TypeVar, get_type_hints, overload

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_jsonable_python

from llm.messages.escaping import escape_tags

_MARK = "__terrarium_tool__"
_LONG = 3_000  # characters of a result; a longer one is cut
_SHORT = 2_500

EFFECT_KEY: ContextVar[str] = ContextVar("EFFECT_KEY")
"""While a tool with an effect runs: names this effect of this run, the same when it is done again,
as after a crash. Put into a table where it must be unique, it makes the effect happen once."""

F = TypeVar("F", bound=Callable[..., Awaitable[object]])

_log = structlog.get_logger()


class ToolError(Exception):
    """A tool could not do its work; the message is given to the model."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What kind of tool it is.

    `reads`: it only reads, so that several may run at once. `effect`: it changes something beyond
    the run, so it runs once for the same arguments, whatever happens. `keyed`: an effect that heeds
    `EFFECT_KEY`, so that it may be done again with the same key. `needs`: the right that who asks
    must have at the moment when it runs, whatever the model was talked into. `speaks`: it is a
    message to people. `quiet`: it only writes the model's own notes. `research`: it looks things
    up, which may take more uses. `timeout`, in seconds, takes the place of the configured one.
    """

    reads: bool = False
    effect: bool = False
    keyed: bool = False
    needs: str = ""
    speaks: bool = False
    quiet: bool = False
    research: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    arguments: type[BaseModel]
    schema: dict[str, Any]
    """The tool as OpenAI's `tools` field describes it."""
    run: Callable[..., Awaitable[object]]
    traits: ToolOptions = ToolOptions()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call, as the model reads it, and whether the tool did its work; `unsure` when
    it failed so that nobody knows what it has done."""

    text: str
    ok: bool
    unsure: bool = False


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    reads: bool = False,
    effect: bool = False,
    keyed: bool = False,
    needs: str = "",
    speaks: bool = False,
    quiet: bool = False,
    research: bool = False,
    timeout: float | None = None,
) -> Callable[[F], F]: ...


def tool(function: F | None = None, /, **traits: Any) -> F | Callable[[F], F]:
    """Mark an async method or function as a tool; the keywords are those of `ToolOptions`.

    Its docstring tells the model what it does; its annotated parameters, by name, are its
    arguments. It returns text, or anything that JSON can hold, and raises `ToolError` with
    words for the model when it cannot. Raises TypeError for a function that cannot be a tool.
    """

    def mark(function: F) -> F:
        _require_usable(function)
        setattr(function, _MARK, ToolOptions(**traits))
        return function

    return mark(function) if function else mark


Rights = Callable[[], Collection[str]]
"""What who asks may have done, at the moment when it is asked."""


class Toolbox:
    """The tools of one turn, by name; of two that have the same, the first."""

    def __init__(self, tools: Iterable[Tool], rights: Rights = frozenset) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            self._tools.setdefault(item.name, item)
        self._rights = rights

    @classmethod
    def from_owners(cls, *owners: object, rights: Rights = frozenset) -> Toolbox:
        """The marked methods of each owner; an owner may itself be a marked function."""
        tools = (_describe(function) for owner in owners for function in _marked_tools(owner))
        return cls(tools, rights)

    def only(self, names: Collection[str] | None) -> Toolbox:
        """Those of the tools that have one of these names; None: all."""
        if names is None:
            return self
        tools = (item for name, item in self._tools.items() if name in names)
        return Toolbox(tools, self._rights)

    def names(self) -> Collection[str]:
        """What the tools are called."""
        return self._tools.keys()

    def plus(self, *owners: object) -> Toolbox:
        """These tools and those of more owners."""
        more = Toolbox.from_owners(*owners)._tools.values()
        return Toolbox([*self._tools.values(), *more], self._rights)

    def __bool__(self) -> bool:
        return bool(self._tools)

    def schemas(self) -> list[dict[str, Any]]:
        """All tools, as OpenAI's `tools` field lists them."""
        return [item.schema for item in self._tools.values()]

    def options(self, name: str) -> ToolOptions:
        """What kind of tool it is; one that does not exist is of no kind."""
        item = self._tools.get(name)
        return item.traits if item else ToolOptions()

    async def call(self, name: str, arguments: str, timeout: float) -> ToolResult:  # noqa: ASYNC109
        """Run a tool with JSON `arguments`, for at most `timeout` seconds.

        Never raises: a name that does not exist, arguments that do not fit, a tool that fails
        or takes too long, each is a result that says so.
        """
        item = self._tools.get(name)
        if item is None:
            return error_result(name, f"no such tool; there are: {', '.join(self._tools)}")
        if item.traits.needs and item.traits.needs not in self._rights():
            return error_result(name, "not done: the person who asks you may not have that done")
        try:
            values = item.arguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            return error_result(name, _reasons(error))
        (result,) = await asyncio.gather(_run(item, values, timeout), return_exceptions=True)
        text = _text(name, result, timeout)
        ok = isinstance(result, str)
        return ToolResult(
            render_result(name, text), ok, unsure=not (ok or isinstance(result, ToolError))
        )


def error_result(name: str, why: str) -> ToolResult:
    """The result of a call that came to nothing, with the reason for the model."""
    return ToolResult(render_result(name, f"error: {why}"), ok=False)


def render_result(name: str, text: str) -> str:
    """A result as the model reads it: marked as data, its length bounded."""
    if len(text) > _LONG:
        text = text[:_SHORT] + "...[truncated]"
    label = "".join(c for c in name if c.isalnum() or c in "_-")[:64]
    return f'<tool_result tool="{label}">\n{escape_tags(text)}\n</tool_result>'


def tools_in(module: ModuleType) -> list[Callable[..., Awaitable[object]]]:
    """The functions that a module itself marks as tools, in order."""
    own = (each for each in vars(module).values() if getattr(each, _MARK, None))
    return [each for each in own if each.__module__ == module.__name__]


def _marked_tools(owner: object) -> Iterable[Callable[..., Awaitable[object]]]:
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
    if not inspect.getdoc(function):
        raise TypeError(f"@tool {name}: write a docstring; it tells the model what the tool does")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"@tool {name}: name each parameter; {parameter} has no schema")
        if parameter.annotation is parameter.empty and parameter.name != "self":
            raise TypeError(f"@tool {name}: give the parameter {parameter.name} a type")


def _describe(function: Callable[..., Awaitable[object]]) -> Tool:
    """The tool that a marked function or bound method is."""
    name = getattr(function, "__name__", "")
    plain: Any = getattr(function, "__func__", function)
    arguments, schema = _read(plain)
    return Tool(name, arguments, schema, function, getattr(function, _MARK))


@cache
def _read(function: Callable[..., Awaitable[object]]) -> tuple[type[BaseModel], dict[str, Any]]:
    """The model and the schema of a function's arguments: made once, as that takes a while."""
    name = getattr(function, "__name__", "")
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        parameter.name: (
            hints[parameter.name],
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    }
    model = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
    described = {"name": name, "description": inspect.getdoc(function) or ""}
    parameters = model.model_json_schema()
    return model, {"type": "function", "function": {**described, "parameters": parameters}}


async def _run(item: Tool, values: BaseModel, limit: float) -> str:
    """What a tool returns, as text. Raises whatever the tool raises."""
    given = {key: getattr(values, key) for key in type(values).model_fields}
    async with asyncio.timeout(limit):
        result = await item.run(**given)
    if isinstance(result, str):
        return result
    return json.dumps(to_jsonable_python(result), ensure_ascii=False)


def _text(name: str, result: str | BaseException, limit: float) -> str:
    if isinstance(result, ToolError):
        return f"error: {result}"
    if isinstance(result, TimeoutError):
        return f"error: no result within {limit:g} seconds"
    if isinstance(result, BaseException):
        if not isinstance(result, Exception):
            raise result
        _log.error("tool.failed", tool=name, exc_info=result)
        return "error: the tool failed"
    return result


def _reasons(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
        for problem in problems
    )
