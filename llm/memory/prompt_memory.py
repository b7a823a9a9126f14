"""What prompts show of a room's memory: chosen rarely, so that the engine's cache holds.

What stands at the beginning of a prompt must not change from one question to the next. So what is
shown of a room is stored as it was chosen, is the same for all who ask there, and is chosen anew
only after some turns, after a pause (the cache is cold then), or when something was forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from pydantic import BaseModel

from llm.memory.prompts import LONGEST_SUMMARY, one_line
from llm.memory.tools import describe, fact_line
from llm.messages.sections import PromptSection
from storage.memory.consolidation_state import ConsolidationStore, RoomMemorySnapshot
from storage.memory.memories import Memories, Memory, MemoryKind

EPISODES = 5
"""That are shown, the newest."""

_TURNS = 10  # after which it is chosen anew
_PAUSE = timedelta(minutes=30)  # after which it is, too
_FACTS = 1_500  # characters
_EPISODE_BUDGET = EPISODES * 1_520
_BESIDE = 800  # characters, of each section beside a question
_LOOKED_AT = 12  # memories that have words of a question
_FITTING = 3  # of these, the most that are shown
_COMMON = 2  # words, of four letters or more, that one must share with the question
_WORD = re.compile(r"\w{4,}")


class PromptMemory(BaseModel):
    """The texts of the sections, and the ids of the memories in them."""

    facts: str = ""
    summary: str = ""
    episodes: str = ""
    ids: list[int] = []

    def sections(self) -> tuple[PromptSection, ...]:
        """As the stable part of a prompt has them."""
        return (
            PromptSection("facts", self.facts, _FACTS),
            PromptSection("summary", self.summary, LONGEST_SUMMARY),
            PromptSection("episodes", self.episodes, _EPISODE_BUDGET),
        )


async def sections_for_prompt(
    room: str,
    person: str,
    question: str,
    memories: Memories,
    rooms: ConsolidationStore,
    now: datetime,
) -> tuple[tuple[PromptSection, ...], tuple[PromptSection, ...]]:
    """What prompts in the room show now; and what belongs to the question, if it is not shown
    already: what is known about who asks it, and what has several words of it. Raises
    StorageError."""
    wanted = sorted(_words(question))
    has = await rooms.load_for_prompt(room, person, " ".join(wanted), _LOOKED_AT)
    shown = await _current_view(room, has, memories, rooms, now)
    ids = set(shown.ids)
    own = [fact for fact in has.facts if fact.id not in ids]
    ids.update(fact.id for fact in own)
    fitting = [memory for memory in has.found if memory.id not in ids and _fits(memory, wanted)]
    beside = (
        PromptSection("own_facts", "\n".join(map(fact_line, own)), _BESIDE),
        PromptSection("notes", "\n".join(map(describe, fitting[:_FITTING])), _BESIDE),
    )
    return shown.sections(), beside


async def _current_view(
    room: str, has: RoomMemorySnapshot, memories: Memories, rooms: ConsolidationStore, now: datetime
) -> PromptMemory:
    """What was chosen last, or what is chosen anew when it is time."""
    known = PromptMemory.model_validate_json(has.shown) if has.shown else None
    if known is None and not has.anything:
        return PromptMemory()
    if known and has.turns < _TURNS and has.last and now - has.last < _PAUSE:
        return known
    chosen = await _choose(room, memories)
    if chosen != (known or PromptMemory()):
        watermarks = await rooms.progress(room)
        await rooms.save_prompt_view(watermarks, chosen.model_dump_json(), has.newest)
    return chosen


async def _choose(room: str, memories: Memories) -> PromptMemory:
    facts = _within(await memories.facts(room, limit=_FACTS // 10), _FACTS)
    summary = await memories.newest(room, MemoryKind.SUMMARY, 1)
    episodes = await memories.newest(room, MemoryKind.EPISODE, EPISODES)
    return PromptMemory(
        facts="\n".join(fact_line(fact) for fact in facts),
        summary=summary[0].text if summary else "",
        episodes="\n".join(one_line(episode.text, 1_500) for episode in episodes),
        ids=[memory.id for memory in (*facts, *summary, *episodes)],
    )


def _within(facts: Sequence[Memory], budget: int) -> list[Memory]:
    """As many of the first facts as fit, in the order in which they were learnt."""
    kept = []
    for fact in facts:
        budget -= len(fact_line(fact)) + 1
        if budget < 0:
            break
        kept.append(fact)
    return sorted(kept, key=lambda fact: fact.id)


def _fits(memory: Memory, wanted: Collection[str]) -> bool:
    common = len(_words(f"{memory.key} {memory.text}").intersection(wanted))
    return common >= min(_COMMON, max(1, len(wanted)))


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}
