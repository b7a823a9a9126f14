"""The memory of one room, as it serves one person: prompt sections, tools, commands.

The beginning of a prompt must not change from one question to the next, or the engine's prefix
cache is lost. The selection of memories that a room's prompts show is therefore stored, is the same
for everybody who asks there, and is renewed only after some turns, after a pause (when the cache is
cold), or when something was forgotten.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import structlog
from pydantic import BaseModel, Field

from llm.memory.consolidation import (
    MAX_FACT_LENGTH,
    MAX_KEY_LENGTH,
    MAX_NOTE_LENGTH,
    MAX_SUMMARY_LENGTH,
    TendrilMemory,
    key_of,
    one_line,
)
from llm.memory.settings import MemorySettings
from llm.messages.message import CHARACTERS_PER_TOKEN, PromptSection
from llm.tools.consent import to_forget, to_remember
from llm.tools.toolbox import tool
from storage.chat_log.event import Place, Scope, is_private
from storage.chat_log.opt_outs import nick_of, person_of
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.memory.memories import MANUAL, Memories, Memory, MemoryKind, RoomMemorySnapshot

# What people write of themselves, and the key of the fact; "" for the one that they name.
_STATEMENTS = tuple(
    (re.compile(form, re.IGNORECASE), key)
    for form, key in (
        (r"(?:(?:i'?m|i am|ich bin) (?:called|named)|ich heiße|call me) (?P<value>.+)", "name"),
        (r"(?:i live|i'?m living|ich wohne) in (?P<value>.+)", "home"),
        (
            r"(?:my|our|the|mein\w*|unser\w*) (?P<key>[^=:]{1,60}?)"
            r" (?:is|are|was|=|ist|sind|heißt) (?P<value>.+)",
            "",
        ),
        (r"mein\w* (?P<key>\S{1,60}) (?P<value>.+) (?:ist|sind|heißt)", ""),
        (r"(?P<key>[^=:]{1,60}?)\s*(?:=|:(?!//))\s*(?P<value>.+)", ""),
    )
)
_THAT = re.compile(r"(?:that|dass|this:)\s+", re.IGNORECASE)
_VERBS = frozenset(("is", "are", "was", "has", "ist", "sind", "hat"))
_PLAIN_KEY = re.compile(r"(?P<key>[\w-]{1,60})\s+(?P<value>\S.*)")


@dataclass(frozen=True, slots=True)
class Statement:
    """Something to remember: a fact under its `key`, or a note, whose key is empty."""

    key: str
    value: str


def statement_in(text: str) -> Statement | None:
    """Parse what somebody wants to have remembered.

    "tea oolong", "that my tea is oolong" and "tea = oolong" are facts. A sentence that names no key
    is a note. None if there is nothing to remember.
    """
    said = " ".join(text.split()).rstrip(".! ")
    is_sentence = _THAT.match(said) is not None
    said = _THAT.sub("", said, count=1)
    for pattern, key in _STATEMENTS:
        if match := pattern.fullmatch(said):
            return Statement(key or fact_key(match["key"]), match["value"].strip())
    if is_sentence or re.match(r"(?:i|we|ich|wir)\b", said, re.IGNORECASE):
        return Statement("", said) if said else None
    match = _PLAIN_KEY.fullmatch(said)
    if match and match["value"].split()[0].lower() in _VERBS:  # "bob is late" is no fact "bob"
        return Statement("", said)
    return Statement(fact_key(match["key"]), match["value"]) if match else None


def fact_key(text: str) -> str:
    """Return the normalised key of a fact: "my Time Zone" is "timezone"."""
    key = re.sub(r"^(?:my|mein\w*|the)\s+", "", key_of(text))
    return "timezone" if key in ("time zone", "tz", "zeitzone", "time-zone") else key


Sections = tuple[tuple[PromptSection, ...], tuple[PromptSection, ...]]
"""The stable sections of a prompt, and the sections beside its question."""

SHOWN_EPISODES = 5
"""The number of newest episodes that a prompt shows."""

_MAX_SEARCH_RESULTS = 8  # memories in a result of `search_memory`
_MAX_RANKED = 50  # results of the full-text search that are ranked by age too
# The half-life of the bonus for recent memories, which count up to twice as much as old ones.
_RECENCY_HALF_LIFE = timedelta(days=30)

# The stable sections are selected again after so many turns, or such a pause.
_RENEWAL_TURNS = 10
_RENEWAL_PAUSE = timedelta(minutes=30)

_FACT_BUDGET = 1_500  # characters
_EPISODE_BUDGET = SHOWN_EPISODES * 1_520
_QUESTION_SECTION_BUDGET = 800  # characters, of each section beside a question

# Of the memories that the full-text search returns for a question, the first few that share
# enough words of four letters or more with it are shown.
_MAX_CANDIDATES = 12
_MAX_MATCHES = 3
_MIN_COMMON_WORDS = 2
_WORD = re.compile(r"\w{4,}")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RoomMemory:
    """The memory of one room, as it serves a conversation with one person; gives access to no other
    room, and to the facts and notes of nobody else.

    Its tools take the name of a key, never of a person, so that a model cannot use the memories of
    others either.
    """

    memory: TendrilMemory
    room: str
    conversation: str
    person: str

    @classmethod
    def of(cls, memory: TendrilMemory, room: str, conversation: str, person: str) -> RoomMemory:
        """Return the memory of a room; the name of the person may be in any spelling."""
        return cls(memory, room, conversation, person_of(person))

    async def store(self, value: str, key: str = "") -> str:
        """Store a fact about the person under its key or, without a key, a note; return the
        normalised key. Raises StorageError."""
        name = key_of(key)
        memory = Memory(
            layer=MemoryKind.FACT if name else MemoryKind.NOTE,
            room=self.room,
            text=one_line(value, MAX_FACT_LENGTH if name else MAX_NOTE_LENGTH),
            time=self.memory.clock.now(),
            subject=self.person,
            key=name,
            source=self.person,
            manual=True,
            confidence=MANUAL,
            conversation=self.conversation,
        )
        await self.memory.memories.add(memory)
        return name

    async def facts(self) -> list[Memory]:
        """Return the facts about the person, those they asked for first. Raises StorageError."""
        return await self.memory.memories.facts(self.room, self.person)

    async def fact(self, key: str) -> Memory | None:
        """Return the fact under a key, None if there is none. Raises StorageError."""
        return await self.memory.memories.fact(self.room, self.person, key_of(key))

    async def notes(self) -> list[Memory]:
        """Return the person's notes, oldest first. Raises StorageError."""
        notes = await self.memory.memories.latest(self.room, MemoryKind.NOTE)
        return [note for note in notes if note.subject == self.person]

    async def delete(self, key: str | None = None) -> int:
        """Delete a fact, or all facts and notes; return how many. Raises StorageError."""
        name = None if key is None else key_of(key)
        return await self.memory.memories.forget(self.room, self.person, name)

    async def search(self, text: str, limit: int) -> list[Memory]:
        """Return the `limit` best matches among the room's memories, by their words and age, best
        first. Raises StorageError."""
        found = await self.memory.memories.search(self.room, text, _MAX_RANKED)
        now = self.memory.clock.now()

        def worth(match: tuple[Memory, float]) -> tuple[float, int]:
            memory, score = match
            age = max(timedelta(), now - memory.time) / _RECENCY_HALF_LIFE
            # The full-text score is unbounded; map it to 0..1.
            return score / (1 + score) * (0.5 + 0.5 * math.pow(0.5, age)), memory.id

        return [memory for memory, _ in sorted(found, key=worth, reverse=True)[:limit]]

    @tool(quiet=True, asked=to_remember)
    async def remember(
        self,
        value: Annotated[str, Field(min_length=1, max_length=2_000, description="what it is")],
        key: Annotated[
            str,
            Field(max_length=200, description="its name, by which it is found; none for a note"),
        ] = "",
    ) -> str:
        """Remember something for the person who asks, when they ask for it, in their own words."""
        name = await self.store(value, key)
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
            facts = await self.facts()
            return (
                "\n".join(f"{fact.key} = {fact.text}" for fact in facts)
                or "nothing yet, in this place"
            )
        found = await self.fact(key)
        return found.text if found else f"nothing under {one_line(key, MAX_KEY_LENGTH)}"

    @tool(reads=True)
    async def search_memory(
        self, query: Annotated[str, Field(min_length=1, max_length=200, description="words")]
    ) -> str:
        """Search what is remembered of this place: facts about people, notes, what happened."""
        found = await self.search(query, _MAX_SEARCH_RESULTS)
        return "\n".join(map(describe, found)) or "nothing found"

    @tool(effect=True, asked=to_forget)
    async def forget(
        self,
        scope: Annotated[
            str,
            Field(
                min_length=1,
                max_length=200,
                description='the name of a fact, as `recall` lists it, or "all"',
            ),
        ],
    ) -> str:
        """Forget what is remembered about the person who asks, when they ask for it."""
        count = await self.delete(None if key_of(scope) == "all" else scope)
        return f"forgotten: {count}" if count else "there was nothing like that"

    async def sections(self, question: str) -> Sections:
        """Return the memory sections of a prompt; none if the store cannot be read."""
        words = _words(question)
        try:
            snapshot = await self.memory.memories.load_for_prompt(
                self.room, self.person, " ".join(sorted(words)), _MAX_CANDIDATES
            )
            stable = await self._stable(snapshot)
        except StorageError as error:
            _log.error("memory.not_read", error=str(error))
            return (), ()
        # Beside the question stand facts about the person and memories that share words with it,
        # except what the stable sections already show.
        ids = set(stable.ids)
        own = [fact for fact in snapshot.facts if fact.id not in ids]
        ids.update(fact.id for fact in own)
        matches = [
            each
            for each in snapshot.found
            if each.id not in ids and shared_words(question, f"{each.key} {each.text}")
        ]
        beside = (
            PromptSection("own_facts", "\n".join(map(describe, own)), _QUESTION_SECTION_BUDGET),
            PromptSection(
                "notes", "\n".join(map(describe, matches[:_MAX_MATCHES])), _QUESTION_SECTION_BUDGET
            ),
        )
        return stable.sections(), beside

    async def _stable(self, snapshot: RoomMemorySnapshot) -> PromptMemory:
        """Return the stored selection of stable memories, or a new one when it is time."""
        # Forgetting clears `shown`, so that nothing forgotten stays in a prompt.
        stored = PromptMemory.model_validate_json(snapshot.shown) if snapshot.shown else None
        if stored is None and not snapshot.anything:  # a new room: nothing to select from
            return PromptMemory()
        recent = snapshot.last and self.memory.clock.now() - snapshot.last < _RENEWAL_PAUSE
        if stored and recent and snapshot.turns < _RENEWAL_TURNS:
            return stored
        # The version is read before the memories: if something is forgotten in between, the
        # selection is not stored, as it may still contain it.
        memories, room = self.memory.memories, self.room
        watermarks = await memories.progress(room)
        facts, budget = [], _FACT_BUDGET
        for fact in await memories.facts(room, limit=_FACT_BUDGET // 10):
            budget -= len(fact_line(fact)) + 1
            if budget < 0:
                break
            facts.append(fact)
        facts.sort(key=lambda fact: fact.id)  # in the order in which they were learnt
        summary = await memories.latest(room, MemoryKind.SUMMARY, 1)
        episodes = await memories.latest(room, MemoryKind.EPISODE, SHOWN_EPISODES)
        chosen = PromptMemory(
            facts="\n".join(map(fact_line, facts)),
            summary=summary[0].text if summary else "",
            episodes="\n".join(
                f"{episode.begun or episode.time:%Y-%m-%d} {one_line(episode.text, 1_500)}"
                for episode in episodes
            ),
            ids=[memory.id for memory in (*facts, *summary, *episodes)],
        )
        if chosen != (stored or PromptMemory()):
            await memories.save_prompt_view(watermarks, chosen.model_dump_json(), snapshot.newest)
        return chosen


class PromptMemory(BaseModel):
    """The texts of the stable sections, and the ids of the memories in them."""

    facts: str = ""
    summary: str = ""
    episodes: str = ""
    ids: list[int] = []

    def sections(self) -> tuple[PromptSection, ...]:
        """Return the sections for the stable part of a prompt."""
        return (
            PromptSection("facts", self.facts, _FACT_BUDGET),
            PromptSection("summary", self.summary, MAX_SUMMARY_LENGTH),
            PromptSection("episodes", self.episodes, _EPISODE_BUDGET),
        )


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The shared working memory: what other rooms, of all tendrils whose stores are beside
    `database` (with SQLite in `data`), know that a question may use.

    It is chosen anew for each question, within a budget of tokens, from the facts that people have
    had remembered and the model has noted. Nothing flows from a private room to a public one:

    - a fact of a public room is shown where that room may be read, if it is about who asks or
      shares words with the question;
    - a fact that somebody has told of themselves in private is shown to them in private.

    A nick is no identity. Somebody is the same person in two rooms of a network by their account,
    and on two networks if `[memory] people` says so.
    """

    tendril: str
    database: Database
    data: Path
    settings: MemorySettings

    async def section(
        self, memory: RoomMemory, question: str, network: str, scope: Scope, *, private: bool
    ) -> PromptSection:
        """Return the section for a question in the room of `memory` by its person, who is on
        `network` and may read a scope; empty if there is nothing, or it cannot be read."""
        budget = self.settings.shared_tokens * CHARACTERS_PER_TOKEN
        lines = []
        if budget:
            who = f"{network}/{memory.person}"
            # The names under which the person is known for sure. Anybody may have a nick, and a
            # mask may be somebody else's tomorrow.
            asker = {who} if memory.person.startswith("~") else set[str]()
            asker |= {each for group in self.settings.people if who in group for each in group}
            try:
                for store, fact in await self._facts(memory, asker, network, scope):
                    room_network, _, name = fact.room.partition("/")
                    place = Place(room_network, unquote(name))
                    own = not asker.isdisjoint(
                        {f"{room_network}/{fact.subject}", f"{store}/{fact.subject}"}
                    )
                    if name and not is_private(place.channel):
                        about = own or shared_words(question, f"{fact.key} {fact.text}")
                        if about and scope.covers(place):
                            lines.append(f"{fact_line(fact)} (told in {place.channel})")
                    elif private and own and fact.source == fact.subject:
                        lines.append(f"{fact_line(fact)} (told in private)")
            except StorageError as error:
                _log.error("memory.not_shared", error=str(error))
        return PromptSection("known_elsewhere", "\n".join(lines), budget)

    async def _facts(
        self, memory: RoomMemory, asker: Set[str], network: str, scope: Scope
    ) -> Sequence[tuple[str, Memory]]:
        """Return the facts of other rooms with the names of their stores; of other tendrils only if
        the scope or the person reaches beyond this network."""
        found = [(self.tendril, fact) for fact in await memory.memory.memories.outside(memory.room)]
        networks = {place.network for place in scope.places or ()}
        networks |= {name.partition("/")[0] for name in asker}
        if scope.places is None or networks - {network}:
            for store, address in (await self.database.neighbours(self.data)).items():
                async with Database.open(address, read_only=True) as database:
                    facts = await Memories(database).outside(memory.room)
                found += [(store, fact) for fact in facts]
        return found


def describe(memory: Memory) -> str:
    """Render a memory as a line for the model."""
    day = f"{memory.time:%Y-%m-%d}"
    if memory.layer is MemoryKind.FACT:
        return fact_line(memory)
    who = f" of {nick_of(memory.source)}" if memory.source else ""
    return f"{day} {memory.layer}{who}: {one_line(memory.text, 500)}"


def fact_line(fact: Memory) -> str:
    """Render a fact as a line for the model, with its source if that is another person."""
    said_by = "" if fact.source == fact.subject else f" (says {nick_of(fact.source)})"
    return f"{nick_of(fact.subject)}: {fact.key} = {fact.text}{said_by}"


def shared_words(question: str, text: str) -> bool:
    """Return whether a text shares enough words with a question to be shown beside it."""
    words = _words(question)
    return len(words & _words(text)) >= min(_MIN_COMMON_WORDS, max(1, len(words)))


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}
