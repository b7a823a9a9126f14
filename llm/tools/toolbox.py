"""Tools: typed async functions whose signature provides the schema and the validation, and whose
docstring is the description for the model."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any, Literal, NewType, TypedDict, TypeVar, Unpack, get_type_hints, overload

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_jsonable_python

from llm.messages.message import Image, QuotingText, ShownText, ToolCall, escape_tags
from llm.tools.consent import LISTS, Asker, Rule, RunSoFar, Said
from llm.web.links import has_address

MCP_SEPARATOR = "__"
"""Separator of server and tool in the names of MCP servers' tools; no name of ours contains it."""

_MARK = "__terrarium_tool__"

MAX_RESULT_LENGTH = 20_000
"""The most characters of a result that any model is given."""

EffectKey = NewType("EffectKey", str)
"""Idempotency key of one effect of a run, the same when the run is repeated after a crash.

A tool marked `keyed=True` has a parameter of this type, which is hidden from the model. Stored
under a unique constraint, the key makes the effect happen only once.
"""

NO_KEY = EffectKey("")
"""The key of a call that has no effect."""

NOBODY = Asker()
"""Nobody asks: there are no rights, and no words that ask for anything."""

_AT_START = RunSoFar()

ResultLength = NewType("ResultLength", int)
"""The most characters that the result of a call may have: longer ones are cut at the end.

A tool that can choose better what to leave out, and say how to get it, has a parameter of this
type, which is hidden from the model.
"""

F = TypeVar("F", bound=Callable[..., Awaitable[object]])

Links = Literal["", "found", "quoted"]

_log = structlog.get_logger()


class ToolError(Exception):
    """The tool could not do its work; the message is given to the model."""

    indeterminate = False


class IndeterminateToolError(ToolError):
    """The tool failed, and may have had an effect all the same."""

    indeterminate = True


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """Properties of a tool.

    `reads`: it only reads, so several calls may run concurrently. `effect`: it changes something
    beyond the run, so it happens at most once per run with the same arguments. `keyed`: an effect
    made idempotent by a parameter of type `EffectKey`, so that it may be retried with that key.
    `needs`: the right that the person asking must have when the tool runs, whatever the model was
    persuaded of. `asked`: the rule for what they must have said (`llm.tools.consent`). `links`:
    addresses in its results may be opened, those in `quoted` lines of people only if the question
    calls for a page and names none. `speaks`: it sends a message to people. `quiet`: it only writes
    the model's own notes. `research`: it looks things up, and so may be used more often. `timeout`:
    seconds that override the default. `activity` tells people what it is doing, with arguments in
    braces: "searching the log for {query}". `mcp`: MCP clients of the web tendril may call it as
    well; they have no rights, so it must not reveal anything that they may not read.
    """

    reads: bool = False
    effect: bool = False
    keyed: bool = False
    needs: str = ""
    asked: Rule | None = None
    links: Links = ""
    speaks: bool = False
    quiet: bool = False
    research: bool = False
    timeout: float | None = None
    activity: str = ""
    mcp: bool = False


class ToolKeywords(TypedDict, total=False):
    """Keyword arguments of `tool`, the fields of `ToolOptions`."""

    reads: bool
    effect: bool
    keyed: bool
    needs: str
    asked: Rule | None
    links: Links
    speaks: bool
    quiet: bool
    research: bool
    timeout: float | None
    activity: str
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
    hidden: Mapping[str, object] = field(default_factory=dict)
    """The parameters that the model does not see, by name: `EffectKey`, `ResultLength` or
    `RunSoFar`."""
    model_parameter: str = ""
    """Name of the parameter that receives all `arguments` as one object, "" if there is none."""
    result: type[BaseModel] | None = None
    """The model of its results, None if they have none."""


@dataclass(frozen=True, slots=True)
class ImageResult:
    """Tool result with an image, which only a model with vision is shown, and a text about it."""

    text: str
    image: Image


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a call as the model reads it, optionally with an image; `ok` if the tool succeeded,
    `indeterminate` if it failed and may have had an effect. `shown` are the log lines in it."""

    text: str
    ok: bool
    indeterminate: bool = False
    image: Image | None = None
    shown: tuple[ShownText, ...] = ()


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(**options: Unpack[ToolKeywords]) -> Callable[[F], F]: ...


def tool(function: F | None = None, /, **options: Unpack[ToolKeywords]) -> F | Callable[[F], F]:
    """Mark an async method or function as a tool; the keywords are those of `ToolOptions`.

    The docstring is the description for the model, and the annotated parameters are the named
    arguments; a single parameter whose type is a pydantic model stands for the fields of that. The
    function returns text or any value that JSON can represent, and raises `ToolError` with a
    message for the model when it fails. Raises TypeError for a function that cannot be a tool.
    """

    def mark(function: F) -> F:
        name = getattr(function, "__qualname__", repr(function))
        is_async = inspect.iscoroutinefunction(function)
        if not is_async:
            raise TypeError(f"@tool {name}: write it as `async def`")
        if MCP_SEPARATOR in function.__name__.strip("_"):
            belong = f"names with {MCP_SEPARATOR} belong to the tools of MCP servers"
            raise TypeError(f"@tool {name}: {belong}")
        if not inspect.getdoc(function):
            why = "write a docstring; it tells the model what the tool does"
            raise TypeError(f"@tool {name}: {why}")
        for each in inspect.signature(function).parameters.values():
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise TypeError(f"@tool {name}: name each parameter; {each} has no schema")
            if each.annotation is each.empty and each.name != "self":
                raise TypeError(f"@tool {name}: give the parameter {each.name} a type")
        setattr(function, _MARK, ToolOptions(**options))
        return function

    return mark(function) if function else mark


class ToolSource(ABC):
    """Provider of tools that are not marked methods, and may change from turn to turn."""

    @abstractmethod
    def tools(self) -> Iterable[Tool]:
        """Return the tools that currently exist."""


class Toolbox:
    """The tools of one turn, which run for its `asker`, in the order of their names, so that the
    same tools are always the same list; the first one wins if names collide. No result is longer
    than `length` characters."""

    def __init__(
        self, tools: Iterable[Tool], asker: Asker = NOBODY, length: int = MAX_RESULT_LENGTH
    ) -> None:
        found: dict[str, Tool] = {}
        for item in tools:
            found.setdefault(item.name, item)
        self._tools = dict(sorted(found.items()))
        self._asker, self._length = asker, length

    @classmethod
    def from_owners(
        cls, *owners: object, asker: Asker = NOBODY, length: int = MAX_RESULT_LENGTH
    ) -> Toolbox:
        """Create a toolbox of objects with marked methods, marked functions, and `ToolSource`s."""
        tools = (
            owner.tools() if isinstance(owner, ToolSource) else map(describe, tools_of(owner))
            for owner in owners
        )
        return cls((each for owned in tools for each in owned), asker, length)

    def restricted_to(self, names: Collection[str] | None) -> Toolbox:
        """Return a toolbox with only the tools of these names; None: all."""
        if names is None:
            return self
        return self._with(item for name, item in self._tools.items() if name in names)

    def for_mcp(self) -> Toolbox:
        """Return a toolbox with only the tools that MCP clients may call."""
        return self._with(item for item in self._tools.values() if item.options.mcp)

    def names(self) -> Collection[str]:
        """Return the names of the tools."""
        return self._tools.keys()

    def extended_by(self, *owners: object) -> Toolbox:
        """Return a toolbox with these tools and those of more owners."""
        more = Toolbox.from_owners(*owners)._tools.values()
        return self._with([*self._tools.values(), *more])

    def _with(self, tools: Iterable[Tool]) -> Toolbox:
        return Toolbox(tools, self._asker, self._length)

    def __bool__(self) -> bool:
        return bool(self._tools)

    def result_schema(self, name: str) -> dict[str, Any] | None:
        """Return the JSON schema of the results of a tool, None if it has none."""
        result = self._tools[name].result
        return result.model_json_schema(mode="serialization") if result else None

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools in the format of OpenAI's `tools` field."""
        return [item.schema for item in self._tools.values()]

    def options(self, name: str) -> ToolOptions:
        """Return the options of a tool, the defaults if it does not exist."""
        item = self._tools.get(name)
        return item.options if item else ToolOptions()

    def activity(self, call: ToolCall) -> str:
        """Return in words what a call does, for people who wait; "" if its tool does not say."""
        try:
            arguments = json.loads(call.arguments or "{}").items()
            given = {name: value for name, value in arguments if value}
            return self.options(call.name).activity.format_map(given)
        except (ValueError, KeyError, AttributeError, RecursionError):
            return ""  # not JSON, or it does not say what it looks for

    async def call(
        self,
        name: str,
        arguments: str,
        timeout: float,  # noqa: ASYNC109 -- the result says that time was up
        key: EffectKey = NO_KEY,
        run: RunSoFar = _AT_START,
    ) -> ToolResult:
        """Run a tool with JSON `arguments`, for at most `timeout` seconds.

        Reports failures, such as an unknown name, invalid arguments, an error of the tool or a
        timeout, as a result for the model instead of raising.
        """
        try:
            result = await self.run(name, arguments, timeout, key, run)
        except ToolError as error:
            return error_result(name, str(error), indeterminate=error.indeterminate)
        image = result.image if isinstance(result, ImageResult) else None
        shown = result.shown if isinstance(result, QuotingText) else ()
        text = render_result(name, text_of(result), self._length)
        return ToolResult(text, ok=True, image=image, shown=shown)

    async def run(
        self,
        name: str,
        arguments: str,
        timeout: float,  # noqa: ASYNC109 -- the error says that time was up
        key: EffectKey = NO_KEY,
        run: RunSoFar = _AT_START,
    ) -> object:
        """Run a tool as `call` does, and return its result as a JSON-compatible value or an
        `ImageResult`. Raises ToolError, IndeterminateToolError for a timeout or a crash."""
        item = self._tools.get(name)
        if item is None:
            raise ToolError(f"no such tool; there are: {', '.join(self._tools)}")
        # Checked when the tool runs, as the right may have been lost since the turn began, and
        # never left to the model, which a prompt injection can persuade.
        if item.options.needs and item.options.needs not in self._asker.rights():
            raise ToolError("not done: the person who asks you may not have that done")
        try:
            values = item.arguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            # Without the input: control tokens in it are not echoed to the model.
            found = error.errors(include_url=False, include_input=False, include_context=False)
            reasons = (
                f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in found
            )
            raise ToolError("; ".join(reasons)) from error
        rule = item.options.asked
        if rule and (why := rule(await self._evidence(item, run), dict(values))):
            raise ToolError(f"not done: {why}")
        # Shallow, unlike `model_dump`: parameters that are models themselves stay models.
        given = {item.model_parameter: values} if item.model_parameter else dict(values)
        known: dict[object, object] = {EffectKey: key, RunSoFar: run}
        known[ResultLength] = ResultLength(self._length)
        given |= {name: known[kind] for name, kind in item.hidden.items()}
        try:
            async with asyncio.timeout(timeout):
                result = await item.run(**given)
            is_whole = isinstance(result, ImageResult | QuotingText)
            return result if is_whole else to_jsonable_python(result)
        except ToolError:
            raise
        except TimeoutError as error:
            raise IndeterminateToolError(f"no result within {timeout:g} seconds") from error
        except Exception as error:
            # Any third-party code may raise anything. The details go to our log, not to the model.
            _log.exception("tool.failed", tool=name)
            raise IndeterminateToolError("the tool failed") from error

    async def _evidence(self, item: Tool, run: RunSoFar) -> Said:
        """Return what a call of a tool is judged by."""
        asker = self._asker
        # A right belongs to who has asked this question; anybody else may have had the nick before,
        # or have it for a follow-up.
        if item.options.needs:
            return Said(asker.who, (asker.words,), kind=asker.kind)
        # Addresses in results may be opened, but in private none: by the choice between addresses
        # that others provide, a model that is persuaded to could spell out what was said.
        openable: set[Links] = set() if asker.private else {"found"}
        if openable and item.name in asker.calls_for and not has_address(asker.words):
            openable.add("quoted")
        found = [text for name, text in run.results if self.options(name).links in openable]
        listed = [text for name, text in run.results if name in LISTS]
        words = (asker.words, *run.joined)
        earlier = await asker.earlier() if asker.earlier else ()
        return Said(asker.who, words, earlier, found, asker.kind, listed)


def error_result(name: str, reason: str, *, indeterminate: bool = False) -> ToolResult:
    """Return the result of a failed call, with the reason for the model."""
    return ToolResult(
        render_result(name, f"error: {reason}"), ok=False, indeterminate=indeterminate
    )


def render_result(name: str, text: str, length: int = MAX_RESULT_LENGTH) -> str:
    """Render a result for the model: marked as data, and cut to `length` characters."""
    if len(text) > length:
        text = f"{text[:length]}\n(cut off here: {len(text) - length:,} more characters)"
    # The name comes from the model, so neither name nor text may close the tag or open another.
    label = "".join(c for c in name if c.isalnum() or c in "_-")[:64]
    return f'<tool_result tool="{label}">\n{escape_tags(text)}\n</tool_result>'


def tools_in(module: ModuleType) -> list[Callable[..., Awaitable[object]]]:
    """Return the functions marked as tools that a module defines itself, in order of definition."""
    own = (each for each in vars(module).values() if getattr(each, _MARK, None))
    return [each for each in own if each.__module__ == module.__name__]


def tools_of(owner: object) -> Iterable[Callable[..., Awaitable[object]]]:
    """Return the marked methods of an object, or a marked function itself."""
    if callable(owner) and hasattr(owner, _MARK):
        return [owner]
    kind: Any = type(owner)
    return [getattr(owner, name) for name in _marked_names(kind)]


@cache
def _marked_names(kind: type[Any]) -> list[str]:
    methods = inspect.getmembers(kind, inspect.iscoroutinefunction)
    return [name for name, method in methods if hasattr(method, _MARK)]


def describe(function: Callable[..., Awaitable[object]], more: str = "") -> Tool:
    """Return the tool of a marked function or method; `more` is added to its description."""
    # `_read` is cached by the plain function; only `run` differs between instances.
    found = replace(_read(getattr(function, "__func__", function)), run=function)
    if not more:
        return found
    told = found.schema["function"]
    described = told | {"description": f"{told['description']}\n{more}"}
    return replace(found, schema=found.schema | {"function": described})


@cache
def _read(function: Callable[..., Awaitable[object]]) -> Tool:
    """Return the tool of a plain function, cached because creating its pydantic model is slow."""
    name = getattr(function, "__name__", "")
    options: ToolOptions = getattr(function, _MARK)
    hints = get_type_hints(function, include_extras=True)
    kinds = (EffectKey, ResultLength, RunSoFar)
    hidden = {each: hint for each, hint in hints.items() if hint in kinds}
    if (EffectKey in hidden.values()) != (options.effect and options.keyed):
        raise TypeError(
            f"@tool {name}: effect=True, keyed=True and a parameter of type EffectKey go together"
        )
    fields: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is each.empty else each.default)
        for each in inspect.signature(function).parameters.values()
        if each.name != "self" and each.name not in hidden
    }
    whole, (model, _) = next(iter(fields.items()), ("", (None, ...)))
    if len(fields) != 1 or not _is_model(model):
        whole, config = "", ConfigDict(extra="forbid")
        model = create_model(f"{name}_arguments", __config__=config, **fields)
    # Lines of the source mean nothing to the model, paragraphs and lists do.
    description = re.sub(r"(?<=\S)\n(?=\w)", " ", inspect.getdoc(function) or "")
    parameters = concise_schema(model.model_json_schema())
    parameters.pop("description", None)  # of the model's class, which is for programmers
    told = {"name": name, "description": description, "parameters": parameters}
    schema = {"type": "function", "function": told}
    result = hints.get("return")
    made = result if _is_model(result) else None
    return Tool(name, model, schema, function, options, hidden, whole, made)


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def concise_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema of pydantic without what tells a model nothing, as each keyword costs
    tokens in every prompt: titles, empty defaults, null as an alternative, no further properties.
    """
    clean = {
        key: value
        for key, value in schema.items()
        if key != "title"
        and not (key == "default" and value in ("", None, [], False))
        and not (key == "additionalProperties" and isinstance(value, bool))
    }
    for key in ("properties", "$defs"):
        if key in clean:
            clean[key] = {name: concise_schema(inner) for name, inner in clean[key].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(clean.get(key), Mapping):
            clean[key] = concise_schema(clean[key])
    choices = [concise_schema(each) for each in clean.pop("anyOf", ())]
    some = [each for each in choices if each != {"type": "null"}]
    return clean | (some[0] if len(some) == 1 else {"anyOf": some} if some else {})


def text_of(result: object) -> str:
    """Return the result of `Toolbox.run` as text: strings as they are, other values as JSON."""
    if isinstance(result, ImageResult):
        return result.text
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
