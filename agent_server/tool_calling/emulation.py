"""Tool calls for engines without them: a free answer, constrained once it becomes a call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from agent_server.engine_protocol import Chunk, Chunks, chunk_of
from agent_server.errors import InvalidRequest
from agent_server.schemas.chat import plain
from agent_server.schemas.schema_limits import is_supported_pattern
from agent_server.tool_calling.reader import (
    CallDetector,
    CallReader,
    DetectedCall,
    Verdict,
    read_calls,
)
from storage.usage.usage import TokenUsage

Ask = Callable[[Mapping[str, Any]], Chunks]
"""Sends a body to the engine; in its chunks think blocks are already split off."""

TOOL_KEYS = ("tools", "tool_choice", "parallel_tool_calls")

INTRODUCTION = """\
You can use these tools:
{tools}

To use a tool, answer with only this JSON and nothing else:
{{"name": "TOOL", "arguments": {{...}}}}
{several}Otherwise answer in plain text, without JSON."""

SEVERAL = "To use several at once, answer with a JSON list of such objects.\n"


def render_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` for an engine without tools: tools and earlier calls are put into words.

    An earlier call becomes the JSON that the model is told to write. Consecutive results become one
    user message, since plain templates have no tool role.
    """
    added = None
    if _may_call(body):
        keys = ("name", "description", "parameters")
        lines = [
            json.dumps(
                {key: tool["function"][key] for key in keys if tool["function"].get(key)},
                ensure_ascii=False,
            )
            for tool in body["tools"]
        ]
        several = SEVERAL if _several(body) else ""
        added = INTRODUCTION.format(tools="\n".join(lines), several=several)
    kept = {key: value for key, value in body.items() if key not in TOOL_KEYS}
    names: dict[str, str] = {}
    plainly: list[dict[str, Any]] = []
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if role == "assistant":
            calls = message.get("tool_calls") or []
            written = []
            for call in calls:
                function = call["function"]
                names[call["id"]], arguments = function["name"], function["arguments"]
                with suppress(ValueError):  # what is not JSON stays text
                    arguments = json.loads(arguments)
                written.append({"name": function["name"], "arguments": arguments})
            said = [plain(message.get("content"))]
            if written:
                form = written[0] if len(written) == 1 else written
                said.append(json.dumps(form, ensure_ascii=False))
            text = "\n".join(filter(None, said))
            plainly.append({"role": "assistant", "content": text})
        elif role == "tool":
            name = names.get(message["tool_call_id"]) or message.get("name") or "a tool"
            text = f"Result of {name}:\n{plain(message['content'])}"
            if before == "tool":
                plainly[-1]["content"] += f"\n\n{text}"
            else:
                plainly.append({"role": "user", "content": text})
        else:
            plainly.append({"role": role, "content": message["content"]})
        before = role
    if added and plainly[0]["role"] == "system":
        plainly[0]["content"] = f"{plain(plainly[0]['content'])}\n\n{added}"
    elif added:
        plainly.insert(0, {"role": "system", "content": added})
    return {**kept, "messages": plainly}


def answer_with_tools(ask: Ask, body: Mapping[str, Any]) -> Chunks:
    """Answer `body` with text or with `tool_calls`. Raises ApiError."""
    prepared = render_tools(body)
    if not _may_call(body):
        return ask(prepared)
    if (body.get("n") or 1) > 1:
        raise InvalidRequest("n > 1 cannot be combined with tools on this model", param="n")
    choice: Any = body.get("tool_choice") or "auto"
    tools: Sequence[Mapping[str, Any]] = body["tools"]
    if choice == "auto":
        given = [each for each in body["messages"] if each["role"] in ("user", "tool")]
        return _auto(ask, prepared, tools, given, several=_several(body))
    if choice != "required":
        tools = _tools_named(tools, choice["function"]["name"])
    return _force_call(ask, prepared, tools, TokenUsage())


async def _auto(
    ask: Ask,
    body: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
    given: Sequence[Mapping[str, Any]],
    *,
    several: bool,
) -> Chunks:
    # The chunks of a text that may still become a call.
    held: list[Chunk] = []
    detector, tokens = CallDetector(_names(tools), given), 0
    verdict: Verdict = "text"
    asked = body
    if wanted := (body.get("response_format") or {}).get("json_schema"):
        widened = any_of(one_call(tools), wanted["schema"])
        asked = {**body, "response_format": response_format(widened)}
    async with aclosing(ask(asked)) as chunks:
        async for chunk in chunks:
            if piece := _text(chunk):
                # A chunk is about one token; a stream that is stopped early reports no usage.
                tokens += 1
                verdict = detector.feed(piece)
            held.append(chunk)
            if isinstance(verdict, DetectedCall):
                # Closing the generator stops the free answer: the call is generated again from its
                # beginning, constrained, with the same prompt still in the engine's cache.
                break
            # What has ended while it was still open is no call.
            if verdict == "text" or _finish_reason(chunk):
                for each in held:
                    yield each
                held.clear()
    if isinstance(verdict, DetectedCall):
        if words := detector.words.rstrip():
            yield chunk_of({"content": words})
        many = verdict.many and several
        # A call of a tool that does not exist is the client's to answer.
        called = _tools_named(tools, verdict.name) or [{"function": {"name": verdict.name}}]
        spent = TokenUsage(completion=tokens)
        forced = _force_call(ask, body, tools if many else called, spent, many=many)
        async with aclosing(forced) as answer:
            async for chunk in answer:
                yield chunk
    # Chunks that followed the end of an open text, such as its usage.
    for each in held if not isinstance(verdict, DetectedCall) else ():
        yield each


async def _force_call(
    ask: Ask,
    body: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
    spent: TokenUsage,
    *,
    many: bool = False,
) -> Chunks:
    """Generate a call of one of `tools`, or a list of calls, by their schema, and stream it as
    `tool_calls`.

    `spent` is the usage of a first request that was stopped. It had the same prompt, which is
    therefore counted again.
    """
    text, finish, usage, calls_made = "", "stop", None, CallReader()
    speaker: Mapping[str, Any] = {"role": "assistant", "content": None}
    calls = many_calls(tools) if many else one_call(tools)
    async with aclosing(ask({**body, "response_format": response_format(calls)})) as chunks:
        async for chunk in chunks:
            piece = _text(chunk)
            text, finish = text + piece, _finish_reason(chunk) or finish
            if chunk.get("usage"):
                usage = TokenUsage.from_wire(chunk["usage"])
            if reasoning := _text(chunk, "reasoning_content"):
                yield chunk_of({"reasoning_content": reasoning})
            for delta in calls_made.feed(piece):
                yield chunk_of({**speaker, "tool_calls": [delta]})
                speaker = {}
    made = calls_made.count
    # An engine that does not know schemas writes its calls as it likes.
    if not made and finish != "length":
        deltas = read_calls(text, _names(tools))
        said = {"content": None, "tool_calls": deltas} if deltas else {"content": text}
        yield chunk_of({"role": "assistant", **said})
        made = len(deltas)
    # A call that ran into the token limit is incomplete: the client gets "length".
    yield chunk_of({}, "tool_calls" if made and finish != "length" else finish)
    if usage is not None:
        first = TokenUsage(usage.prompt, spent.completion) if spent.completion else TokenUsage()
        yield {"choices": [], "usage": (first + usage).as_wire()}


def _may_call(body: Mapping[str, Any]) -> bool:
    return bool(body.get("tools")) and body.get("tool_choice") != "none"


def _several(body: Mapping[str, Any]) -> bool:
    return body.get("parallel_tool_calls") is not False


def _names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def _tools_named(tools: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [tool for tool in tools if tool["function"]["name"] == name]


def _text(chunk: Chunk, key: str = "content") -> str:
    return "".join((c.get("delta") or {}).get(key) or "" for c in chunk.get("choices", ()))


def _finish_reason(chunk: Chunk) -> str | None:
    reasons = [choice.get("finish_reason") for choice in chunk.get("choices", ())]
    return next(filter(None, reasons), None)


MAX_TEXT_LENGTH = 1000
"""Maximum length of a string whose schema sets none: without a limit a small model may never end
it."""

MAX_CALLS = 8
"""Maximum number of calls in one list."""


def one_call(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of `{"name", "arguments"}` for any one of `tools`."""
    definitions: dict[str, Any] = {}
    calls = []
    for function in (tool["function"] for tool in tools):
        name = function["name"]
        wanted = function.get("parameters") or {"type": "object", "properties": {}}
        arguments = _limit_strings(wanted, name, definitions)
        if arguments.get("properties"):  # a small model would invent more of them
            arguments.setdefault("additionalProperties", False)
        call = {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        calls.append(call)
    schema: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**schema, "$defs": definitions} if definitions else schema


def many_calls(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of a list of calls of `tools`."""
    item = one_call(tools)
    definitions = item.pop("$defs", None)
    schema = {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_CALLS}
    return {**schema, "$defs": definitions} if definitions else schema


def any_of(call: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of either a call or the answer that a client wants."""
    definitions = {**call.get("$defs", {})}
    wanted = _limit_strings(answer, "answer", definitions)
    alone = {key: value for key, value in call.items() if key != "$defs"}
    schema = {"anyOf": [alone, wanted]}
    return {**schema, "$defs": definitions} if definitions else schema


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `response_format` that constrains an answer to `schema`."""
    return {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}


def _limit_strings(schema: Any, owner: str, definitions: dict[str, Any]) -> Any:
    """Copy a schema: its definitions move to `definitions`, free strings get a limit."""
    if isinstance(schema, list):
        return [_limit_strings(item, owner, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    # References are resolved from the root of the whole schema, so definitions have to be there;
    # the owner's name keeps those of two tools apart.
    for group in ("$defs", "definitions"):
        for name, inner in (schema.get(group) or {}).items():
            definitions[f"{owner}.{name}"] = _limit_strings(inner, owner, definitions)
    copy = {
        key: _inner(key, value, owner, definitions)
        for key, value in schema.items()
        if key not in ("$defs", "definitions", "$schema")
        # For one pattern that it does not support, llama.cpp silently ignores the whole schema.
        and not (key == "pattern" and isinstance(value, str) and not is_supported_pattern(value))
    }
    limits = ("maxLength", "enum", "const", "pattern", "format")
    kind = copy.get("type")
    is_text = "string" in (kind if isinstance(kind, list) else [kind])
    if is_text and copy.keys().isdisjoint(limits):
        copy["maxLength"] = MAX_TEXT_LENGTH
    return copy


def _inner(key: str, value: Any, owner: str, definitions: dict[str, Any]) -> Any:
    if key == "$ref" and isinstance(value, str):
        return f"#/$defs/{owner}.{value.rpartition('/')[2]}" if value.startswith("#/") else value
    # The keys in here are names of the tool's own, which may be those of keywords.
    if key in ("properties", "patternProperties") and isinstance(value, dict):
        return {name: _limit_strings(inner, owner, definitions) for name, inner in value.items()}
    if key in ("const", "enum", "default", "examples", "required"):
        return value
    return _limit_strings(value, owner, definitions)
