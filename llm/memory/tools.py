"""The tools over memory: what the model may remember and find for the one person who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from llm.memory.asking import LONGEST_FACT, LONGEST_KEY, LONGEST_NOTE, key_of, one_line
from llm.tools import tool
from storage.memory import MANUAL, Layer, Memory

if TYPE_CHECKING:
    from llm.memory.memory import TendrilMemory

_FOUND = 8  # memories in a result


class MemoryTools:
    """Tools for the person `subject` in a room. Whose facts they are is settled here: the model
    names a key, never a person."""

    def __init__(self, memory: TendrilMemory, room: str, conversation: str, subject: str) -> None:
        self._memory = memory
        self._room = room
        self._conversation = conversation
        self._subject = subject

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
        name = key_of(key)
        memory = Memory(
            layer=Layer.FACT if name else Layer.NOTE,
            room=self._room,
            text=one_line(value, LONGEST_FACT if name else LONGEST_NOTE),
            time=self._memory.now(),
            subject=self._subject,
            key=name,
            source=self._subject,
            manual=True,
            confidence=MANUAL,
            conversation=self._conversation,
        )
        await self._memory.memories.add(memory)
        return f"remembered: {name}" if name else "noted"

    @tool(reads=True)
    async def recall(
        self,
        key: Annotated[
            str, Field(max_length=200, description='the name of a fact, or "all"')
        ] = "all",
    ) -> str:
        """Look up what is remembered about the person who asks."""
        memories, room = self._memory.memories, self._room
        if key_of(key) in ("", "all"):
            facts = await memories.facts(room, self._subject)
            return "\n".join(f"{fact.key} = {fact.text}" for fact in facts) or "nothing yet"
        found = await memories.fact(room, self._subject, key_of(key))
        return found.text if found else f"nothing under {one_line(key, LONGEST_KEY)}"

    @tool(reads=True)
    async def search_memory(
        self, query: Annotated[str, Field(min_length=1, max_length=200, description="words")]
    ) -> str:
        """Search what is remembered of this place: facts about people, notes, what happened."""
        found = await self._memory.search(self._room, query, _FOUND)
        return "\n".join(map(described, found)) or "nothing found"

    @tool(effect=True)
    async def forget(
        self,
        scope: Annotated[
            str, Field(min_length=1, max_length=200, description='the name of a fact, or "all"')
        ],
    ) -> str:
        """Forget what is remembered about the person who asks, when they ask for it."""
        key = None if key_of(scope) == "all" else key_of(scope)
        count = await self._memory.memories.forget(self._room, self._subject, key)
        return f"forgotten: {count}" if count else "there was nothing like that"


def described(memory: Memory) -> str:
    """A memory as a line for the model."""
    day = f"{memory.time:%Y-%m-%d}"
    if memory.layer is Layer.FACT:
        return fact_line(memory)
    who = f" of {memory.source}" if memory.source else ""
    return f"{day} {memory.layer}{who}: {one_line(memory.text, 500)}"


def fact_line(fact: Memory) -> str:
    """A fact as a line for the model, with who said it when that was another one."""
    said_by = "" if fact.source == fact.subject else f" (says {fact.source})"
    return f"{fact.subject}: {fact.key} = {fact.text}{said_by}"
