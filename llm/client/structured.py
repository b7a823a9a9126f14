"""Answers in JSON, as a program reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from llm.client.client import AgentClient, RequestOptions
from llm.messages.errors import RequestRejected
from llm.messages.message import Message, ModelReply

M = TypeVar("M", bound=BaseModel)


class Form(BaseModel):
    """A part of an answer in JSON."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})


def answer_format(name: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return OpenAI's `response_format` for a model's schema."""
    schema = {"name": name, "strict": True, "schema": model.model_json_schema()}
    return {"type": "json_schema", "json_schema": schema}


async def ask_for_json(
    client: AgentClient,
    messages: Sequence[Message],
    options: RequestOptions,
    form: Mapping[str, Any],
) -> ModelReply:
    """Return the reply in a `response_format` or, from a server that does not support it, in what
    form it likes. Raises ModelError."""
    try:
        return await client.chat(messages, options, response_format=form)
    except RequestRejected:
        return await client.chat(messages, options)


def items_in(answer: str, key: str, model: type[M]) -> list[M]:
    """Return the valid items of the list under `key` in an answer.

    Models put text or fences around JSON, so it begins with the first brace; of an answer that was
    cut off, all that is whole counts.
    """
    try:
        value = from_json(answer[max(0, answer.find("{")) :], allow_partial=True)
    except ValueError:
        return []
    listed = value.get(key) if isinstance(value, dict) else None
    found = []
    for each in listed if isinstance(listed, list) else ():
        with suppress(ValidationError):
            found.append(model.model_validate(each))
    return found
