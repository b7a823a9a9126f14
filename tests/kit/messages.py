"""Sample requests to Anthropic's Messages API."""

from __future__ import annotations

from anthropic.types import MessageParam, ToolParam

HELLO: list[MessageParam] = [{"role": "user", "content": "Say hello."}]
WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 40}},
        "required": ["city"],
    },
}
