"""Input of one or several texts, each a string or the token ids of a client's own tokenizer."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from agent_server.schemas.chat import INT32

MAX_TEXTS = 2048
"""Most texts of one request, OpenAI's own limit."""

Text = Annotated[str, Field(min_length=1)]
Ids = Annotated[list[Annotated[int, Field(strict=True, ge=0, le=INT32)]], Field(min_length=1)]


def _shape(value: Any) -> str:
    """Return the tag of the union by the type of the first item, so that an error names the item
    that does not fit instead of every branch."""
    if not isinstance(value, list):
        return "one text"
    first = value[0] if value else ""
    return "numbers" if isinstance(first, int) else "lists" if isinstance(first, list) else "texts"


Input = Annotated[
    Annotated[Text, Tag("one text")]
    | Annotated[Ids, Tag("numbers")]
    | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS), Tag("texts")]
    | Annotated[list[Ids], Field(min_length=1, max_length=MAX_TEXTS), Tag("lists")],
    Discriminator(_shape),
]
