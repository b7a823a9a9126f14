"""MCP prompts, which people choose from a menu, and the completion of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mcp_types as types
from mcp.shared.exceptions import MCPError

from harnesses.web.queries import in_place
from storage.chat_log import statistics
from storage.chat_log.event import Scope
from storage.log import ChatLog

_MAX_VALUES = 100  # of a completion, by the protocol
_LINKS = "Link to the lines that you rely on, and say so if they do not tell."
_ARGUMENTS = {
    "channel": "such as #terrarium, or irc/#terrarium",
    "topic": "in a few words",
    "date": "a day in UTC, YYYY-MM-DD",
}


@dataclass(frozen=True, slots=True)
class _PromptText:
    """A prompt whose `text` has its arguments, all required, in braces."""

    title: str
    arguments: tuple[str, ...]
    text: str


_PROMPTS = {
    "catch_up": _PromptText(
        "Catch me up on a channel",
        ("channel",),
        "Read what was said lately on {channel} with read_log, page by page if it is much. Tell me "
        "in a few sentences what I have missed: what was asked, answered, decided and left open.",
    ),
    "decisions": _PromptText(
        "Who decided what",
        ("topic", "channel"),
        "Find out with search_log and read_log what was decided on {channel} about {topic}: who "
        "decided it, when and why, and who disagreed.",
    ),
    "digest": _PromptText(
        "Digest of a day",
        ("channel", "date"),
        "Read all that was said on {channel} on {date} (UTC) with read_log, and write a digest by "
        "subject.",
    ),
}


async def list_prompts(*_: object) -> types.ListPromptsResult:
    """Return all prompts."""
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                title=prompt.title,
                arguments=[
                    types.PromptArgument(name=each, description=_ARGUMENTS[each], required=True)
                    for each in prompt.arguments
                ],
            )
            for name, prompt in _PROMPTS.items()
        ]
    )


async def get_prompt(_: object, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    """Return a prompt with its arguments. Raises MCPError if it or one of these is missing."""
    prompt, given = _PROMPTS.get(params.name), params.arguments or {}
    if prompt is None:
        names = ", ".join(_PROMPTS)
        raise MCPError(types.INVALID_PARAMS, f"no such prompt; there are: {names}")
    if missing := [each for each in prompt.arguments if not given.get(each)]:
        raise MCPError(types.INVALID_PARAMS, f"{missing[0]} is missing: {_ARGUMENTS[missing[0]]}")
    text = f"{prompt.text.format_map(given)} {_LINKS}"
    message = types.PromptMessage(role="user", content=types.TextContent(text=text))
    return types.GetPromptResult(description=prompt.title, messages=[message])


async def complete(
    log: ChatLog, scope: Scope, params: types.CompleteRequestParams
) -> types.CompleteResult:
    """Complete an argument of a prompt or of the address of a resource: a network, a channel, or a
    day with lines on the channel."""
    argument, known = params.argument, (params.context and params.context.arguments) or {}
    found = await log.read(statistics.channels, scope)
    values: Sequence[str] = ()
    if argument.name == "network":
        values = list(dict.fromkeys(each.place.network for each in found))
    elif argument.name == "channel":
        is_address = isinstance(params.ref, types.ResourceTemplateReference)
        values = [each.place.channel if is_address else str(each.place) for each in found]
    elif argument.name == "date":
        wanted, places = known.get("channel"), [each.place for each in found]
        place = next((each for each in places if wanted in (str(each), each.channel)), None)
        days = await log.read(statistics.days, in_place(scope, place)) if place else ()
        values = [str(day.date) for day in reversed(days)]
    fitting = [each for each in values if argument.value.lower() in each.lower()]
    return types.CompleteResult(
        completion=types.Completion(
            values=fitting[:_MAX_VALUES], total=len(fitting), has_more=len(fitting) > _MAX_VALUES
        )
    )
