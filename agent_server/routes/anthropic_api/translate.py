"""Translation of requests of Anthropic's API to chat requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agent_server.routes.anthropic_api.blocks import (
    AnthropicAssistantMessage,
    AnthropicUserMessage,
    AssistantBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
    UserBlock,
    words,
)
from agent_server.routes.anthropic_api.schemas import (
    CountTokensRequest,
    CustomTool,
    MessagesRequest,
    ToolChoiceTool,
)
from agent_server.schemas.chat import ChatRequest, TokenizeMessages, validate


def to_chat_request(request: MessagesRequest) -> ChatRequest:
    """Translate to a chat request. Raises InvalidRequest."""
    request.require_known()
    config = request.output_config
    body = {**_prompt(request), **request.sampling(), "stream": request.stream}
    if config and config.format:
        schema = {"name": "answer", "schema": config.format.schema_}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if config and config.effort:
        body["reasoning_effort"] = config.effort
    return validate(ChatRequest, body)


def to_tokenize_request(request: CountTokensRequest) -> TokenizeMessages:
    """Translate to a request that counts tokens. Raises InvalidRequest."""
    request.require_known()
    return validate(TokenizeMessages, _prompt(request))


def _prompt(request: CountTokensRequest) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": words(request.system)})
    for turn in request.messages:
        messages.extend(_messages(turn))
    body: dict[str, Any] = {"model": request.model, "messages": messages}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    choice = request.tool_choice
    if choice is None:
        return body
    if choice.disable_parallel_tool_use:
        body["parallel_tool_calls"] = False
    if isinstance(choice, ToolChoiceTool):
        body["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        body["tool_choice"] = "required" if choice.type == "any" else choice.type
    return body


def _tool(tool: CustomTool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    for key in ("description", "strict"):
        if getattr(tool, key) is not None:
            function[key] = getattr(tool, key)
    return {"type": "function", "function": function}


def _messages(turn: Turn) -> Iterator[dict[str, Any]]:
    if isinstance(turn, AnthropicAssistantMessage):
        yield _assistant(turn.content)
    elif isinstance(turn, AnthropicUserMessage) and not isinstance(turn.content, str):
        yield from _user(turn.content)
    else:
        yield {"role": turn.role, "content": words(turn.content)}  # type: ignore[arg-type]


def _user(blocks: Sequence[UserBlock]) -> Iterator[dict[str, Any]]:
    """Yield messages, tool results first: in the chat API they follow their calls directly."""
    parts = []
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            result = {"tool_call_id": block.tool_use_id, "content": block.words()}
            yield {"role": "tool", **result}
        elif isinstance(block, ImageBlock):
            parts.append({"type": "image_url", "image_url": {"url": block.source.image_url()}})
        else:
            parts.append({"type": "text", "text": block.text})
    if parts:
        yield {"role": "user", "content": parts}


def _assistant(content: str | Sequence[AssistantBlock]) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(block.text for block in content if isinstance(block, TextBlock)),
    }
    thoughts = [block.thinking for block in content if isinstance(block, ThinkingBlock)]
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    calls = [_call(block) for block in content if isinstance(block, ToolUseBlock)]
    if calls:
        message.update(tool_calls=calls, content=message["content"] or None)
    return message


def _call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = json.dumps(block.input, ensure_ascii=False)
    function = {"name": block.name, "arguments": arguments}
    return {"id": block.id, "type": "function", "function": function}
