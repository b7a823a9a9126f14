"""The facts and notes about one person in a room, for that person to keep, see and remove."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from llm.memory.prompts import LONGEST_FACT, LONGEST_NOTE, key_of, one_line
from storage.memory.memories import MANUAL, Memories, Memory, MemoryKind

_STATEMENTS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?:my|our|the|mein\w*|unser\w*) (?P<key>[^=:]{1,60}?)"
        r" (?:is|are|was|=|ist|sind|heißt) (?P<value>.+)",
        r"mein\w* (?P<key>\S{1,60}) (?P<value>.+) (?:ist|sind|heißt)",
        r"(?P<key>[^=:]{1,60}?)\s*(?:=|:(?!//))\s*(?P<value>.+)",
    )
)
# What people say of themselves in other words than "my X is Y".
_OF_SELF = (
    (re.compile(r"(?:i'?m|i am|ich bin) (?:called|named) (?P<value>.+)", re.IGNORECASE), "name"),
    (re.compile(r"(?:ich heiße|call me) (?P<value>.+)", re.IGNORECASE), "name"),
    (re.compile(r"(?:i live|i'?m living|ich wohne) in (?P<value>.+)", re.IGNORECASE), "home"),
)
_THAT = re.compile(r"(?:that|dass|this:)\s+", re.IGNORECASE)
_PLAIN_KEY = re.compile(r"(?P<key>[\w-]{1,60})\s+(?P<value>\S.*)")


@dataclass(frozen=True, slots=True)
class Statement:
    """Something to be remembered: a fact with its name, or a note, whose `key` is empty."""

    key: str
    value: str


def statement_in(text: str) -> Statement | None:
    """Read what somebody wants to have remembered: "tea oolong", "that my tea is oolong", "tea =
    oolong". A sentence without a name for what it says is a note; None when nothing is said."""
    said = " ".join(text.split()).rstrip(".! ")
    is_sentence = _THAT.match(said) is not None
    said = _THAT.sub("", said, count=1)
    for pattern, key in _OF_SELF:
        if match := pattern.fullmatch(said):
            return Statement(key, match["value"])
    for pattern in _STATEMENTS:
        if match := pattern.fullmatch(said):
            return Statement(fact_key(match["key"]), match["value"].strip())
    if is_sentence or re.match(r"(?:i|i'm|we|ich|wir)\b", said, re.IGNORECASE):
        return Statement("", said) if said else None
    match = _PLAIN_KEY.fullmatch(said)
    return Statement(fact_key(match["key"]), match["value"]) if match else None


def fact_key(text: str) -> str:
    """Return the name of a fact as it is kept: "my Time Zone" is "timezone"."""
    key = re.sub(r"^(?:my|mein\w*|the)\s+", "", key_of(text))
    return "timezone" if key in ("time zone", "tz", "zeitzone", "time-zone") else key


class PersonalMemory:
    """Facts and notes of the person `subject` in `room`; there is no way to another one's."""

    def __init__(
        self,
        memories: Memories,
        now: Callable[[], datetime],
        room: str,
        conversation: str,
        subject: str,
    ) -> None:
        self._memories, self._now = memories, now
        self._room, self._conversation, self._subject = room, conversation, subject

    async def remember(self, value: str, key: str = "") -> str:
        """Keep a fact under its name or, without one, a note; return the name as it is kept.
        Raises StorageError."""
        name = key_of(key)
        memory = Memory(
            layer=MemoryKind.FACT if name else MemoryKind.NOTE,
            room=self._room,
            text=one_line(value, LONGEST_FACT if name else LONGEST_NOTE),
            time=self._now(),
            subject=self._subject,
            key=name,
            source=self._subject,
            manual=True,
            confidence=MANUAL,
            conversation=self._conversation,
        )
        await self._memories.add(memory)
        return name

    async def facts(self) -> list[Memory]:
        """Return the facts about the person, surest first. Raises StorageError."""
        return await self._memories.facts(self._room, self._subject)

    async def fact(self, key: str) -> Memory | None:
        """Return the fact of a name, None when there is none. Raises StorageError."""
        return await self._memories.fact(self._room, self._subject, key_of(key))

    async def notes(self) -> list[Memory]:
        """Return the notes that the person had taken, oldest first. Raises StorageError."""
        notes = await self._memories.newest(self._room, MemoryKind.NOTE)
        return [note for note in notes if note.subject == self._subject]

    async def forget(self, key: str | None = None) -> int:
        """Remove the fact of a name, or all facts and notes; how many. Raises StorageError."""
        name = None if key is None else key_of(key)
        return await self._memories.forget(self._room, self._subject, name)
