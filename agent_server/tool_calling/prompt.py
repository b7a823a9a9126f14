"""Tools, calls and results as text, for models with a plain chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_server.schemas.chat import plain

INTRODUCTION = """\
You can use these tools:
{tools}

To use a tool, answer with only this JSON and nothing else:
{{"name": "TOOL", "arguments": {{...}}}}
{several}Otherwise answer in plain text, without JSON."""

SEVERAL = "To use several at once, answer with a JSON list of such objects.\n"


def section(tools: Sequence[Mapping[str, Any]], *, several: bool) -> str:
    """Return the section of the system message that describes the tools and the form of calls."""
    lines = "\n".join(_line(tool["function"]) for tool in tools)
    return INTRODUCTION.format(tools=lines, several=SEVERAL if several else "")


def render(messages: Sequence[Mapping[str, Any]], added: str | None) -> list[dict[str, Any]]:
    """Render a history with calls and results as plain messages; `added` goes to the system's.

    An earlier call becomes the JSON that the model is told to write. Consecutive results become one
    user message, since plain templates have no tool role.
    """
    names: dict[str, str] = {}
    plainly: list[dict[str, Any]] = []
    before = ""
    for message in messages:
        role = message["role"]
        if role == "assistant":
            calls = message.get("tool_calls") or []
            names.update({call["id"]: call["function"]["name"] for call in calls})
            text = "\n".join(filter(None, [plain(message.get("content")), _render_calls(calls)]))
            plainly.append({"role": "assistant", "content": text})
        elif role == "tool":
            text = f"Result of {_name(message, names)}:\n{plain(message['content'])}"
            if before == "tool":
                plainly[-1]["content"] += f"\n\n{text}"
            else:
                plainly.append({"role": "user", "content": text})
        else:
            plainly.append({"role": role, "content": message["content"]})
        before = role
    return _with_section(plainly, added) if added else plainly


def call_text(name: str, arguments: str) -> dict[str, Any]:
    """Return a call as the object that the model writes; arguments that are not JSON stay text."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = arguments
    return {"name": name, "arguments": value}


def _line(function: Mapping[str, Any]) -> str:
    described = {"name": function["name"]}
    for key in ("description", "parameters"):
        if function.get(key):
            described[key] = function[key]
    return json.dumps(described, ensure_ascii=False)


def _render_calls(calls: Sequence[Mapping[str, Any]]) -> str:
    written = [call_text(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    if not written:
        return ""
    return json.dumps(written[0] if len(written) == 1 else written, ensure_ascii=False)


def _name(message: Mapping[str, Any], names: Mapping[str, str]) -> str:
    return names.get(message["tool_call_id"]) or message.get("name") or "a tool"


def _with_section(messages: list[dict[str, Any]], added: str) -> list[dict[str, Any]]:
    if messages[0]["role"] in ("system", "developer"):
        first = {**messages[0], "content": f"{plain(messages[0]['content'])}\n\n{added}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": added}, *messages]
