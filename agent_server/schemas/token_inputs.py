"""Texts, or texts that a client has already turned into token numbers; one or several."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from agent_server.schemas.chat import INT32

MOST = 2048
"""Texts of one request: the API's own limit."""

Text = Annotated[str, Field(min_length=1)]
Ids = Annotated[list[Annotated[int, Field(strict=True, ge=0, le=INT32)]], Field(min_length=1)]


def _shape(value: Any) -> str:
    """Return the branch of the union, by the first item, so that an error names the misfit."""
    if not isinstance(value, list):
        return "one text"
    first = value[0] if value else ""
    return "numbers" if isinstance(first, int) else "lists" if isinstance(first, list) else "texts"


Input = Annotated[
    Annotated[Text, Tag("one text")]
    | Annotated[Ids, Tag("numbers")]
    | Annotated[list[Text], Field(min_length=1, max_length=MOST), Tag("texts")]
    | Annotated[list[Ids], Field(min_length=1, max_length=MOST), Tag("lists")],
    Discriminator(_shape),
]
