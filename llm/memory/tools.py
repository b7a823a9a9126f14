"""The tools over memory: what the model may remember and find for the one person who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from llm.memory.personal import PersonalMemory
from llm.memory.prompts import LONGEST_KEY, key_of, one_line
from llm.tools.toolbox import tool
from storage.memory.memories import Memory, MemoryKind

if TYPE_CHECKING:
    from llm.memory.memory import TendrilMemory

_FOUND = 8  # memories in a result


class MemoryTools:
    """Tools for the person `subject` in a room. Whose facts they are is settled here: the model
    names a key, never a person."""

    def __init__(self, memory: TendrilMemory, room: str, conversation: str, subject: str) -> None:
        self._memory = memory
        self._room = room
        self._personal = PersonalMemory(memory.memories, memory.now, room, conversation, subject)

    @tool(quiet=True)
    async def remember(
        self,
        value: Annotated[str, Field(min_length=1, max_length=2_000, description="what it is")],
        key: Annotated[
            str,
            Field(max_length=200, description="its name, by which it is found; none for a note"),
        ] = "",
    ) -> str:
        """Remember something for the person who asks, when they ask for it."""
        name = await self._personal.remember(value, key)
        return f"remembered: {name}" if name else "noted"

    @tool(reads=True)
    async def recall(
        self,
        key: Annotated[
            str, Field(max_length=200, description='the name of a fact, or "all"')
        ] = "all",
    ) -> str:
        """Look up what is remembered about the person who asks."""
        if key_of(key) in ("", "all"):
            facts = await self._personal.facts()
            return "\n".join(f"{fact.key} = {fact.text}" for fact in facts) or "nothing yet"
        found = await self._personal.fact(key)
        return found.text if found else f"nothing under {one_line(key, LONGEST_KEY)}"

    @tool(reads=True)
    async def search_memory(
        self, query: Annotated[str, Field(min_length=1, max_length=200, description="words")]
    ) -> str:
        """Search what is remembered of this place: facts about people, notes, what happened."""
        found = await self._memory.search(self._room, query, _FOUND)
        return "\n".join(map(describe, found)) or "nothing found"

    @tool(effect=True)
    async def forget(
        self,
        scope: Annotated[
            str, Field(min_length=1, max_length=200, description='the name of a fact, or "all"')
        ],
    ) -> str:
        """Forget what is remembered about the person who asks, when they ask for it."""
        count = await self._personal.forget(None if key_of(scope) == "all" else scope)
        return f"forgotten: {count}" if count else "there was nothing like that"


def describe(memory: Memory) -> str:
    """A memory as a line for the model."""
    day = f"{memory.time:%Y-%m-%d}"
    if memory.layer is MemoryKind.FACT:
        return fact_line(memory)
    who = f" of {memory.source}" if memory.source else ""
    return f"{day} {memory.layer}{who}: {one_line(memory.text, 500)}"


def fact_line(fact: Memory) -> str:
    """A fact as a line for the model, with who said it when that was another one."""
    said_by = "" if fact.source == fact.subject else f" (says {fact.source})"
    return f"{fact.subject}: {fact.key} = {fact.text}{said_by}"
