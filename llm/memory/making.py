"""The jobs of memory: turns become a summary, episodes and facts, a piece at a time.

Each piece is stored together with how far it came (storage/memory/consolidation_state.py), so a job
that is ended anywhere goes on from there, and one that is run again finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog

from llm.client.client import AgentClient, Call
from llm.client.model_catalog import Models
from llm.memory import asking
from llm.memory.cadence import CONDENSED, MOST_NOTES, SESSION, STUDIED, Work
from llm.messages.errors import ContextTooLong, Refused
from llm.messages.message import Message
from llm.scheduling.worker import Handler
from storage.memory.consolidation_state import Gap, Progress, Rooms, RoomTurn
from storage.memory.memories import HEARSAY, OWN, Layer, Memories, Memory
from storage.memory.vectors import MemoryVectors
from storage.queues.jobs import Job
from terrarium.clock import Clock

_PIECE = 40  # turns that go into a summary at once
_GAP = 200  # turns that a lost episode may have been made of
_UNCONFIRMED = timedelta(days=90)  # for which a learnt fact is kept
_BATCH = 64  # vectors made at once
_TOKENS = {"summary": 400, "episode": 120, "facts": 300}

_log = structlog.get_logger()


class NothingSaid(Exception):
    """The model's answer was empty."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the jobs work with. `learns` tells whether the model is to be asked at all; `embeds`
    whether there are vectors."""

    tendril: str
    client: AgentClient
    models: Models
    clock: Clock
    memories: Memories
    rooms: Rooms
    vectors: MemoryVectors
    learns: Callable[[], Awaitable[bool]]
    embeds: bool


class Making:
    """The handlers of the jobs. All may raise ModelError and StorageError."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._rooms = parts.rooms

    def handlers(self) -> Mapping[str, Handler]:
        """What is done, by kind of job."""
        return {
            Work.FOLD: self.fold,
            Work.TELL: self.tell,
            Work.STUDY: self.study,
            Work.CONDENSE: self.condense,
            Work.EMBED: self.embed,
        }

    async def fold(self, job: Job) -> None:
        """Bring a room's summary up to a turn."""
        room, size = job.payload["room"], _PIECE
        while await self._parts.learns():
            known = await self._rooms.progress(room)
            target = max(job.payload["through"], known.wanted)
            if known.folded >= target:
                break
            turns = await self._rooms.turns(room, known.folded, target, size)
            through = turns[-1].id if len(turns) == size else target
            try:
                summary = await self._summary(known, turns, through)
            except ContextTooLong:
                if size == 1:
                    raise
                size //= 2
                continue
            await self._rooms.fold(known, through, summary, turns)
        await self._embed(room)

    async def tell(self, job: Job) -> None:
        """Make episodes of a room's turns up to one, and those that are missing."""
        room = job.payload["room"]
        while await self._parts.learns():
            known = await self._rooms.progress(room)
            gaps = await self._rooms.gaps(room)
            if gaps:
                await self._fill(known, gaps[0])
                continue
            if known.told >= job.payload["through"]:
                break
            turns = await self._rooms.turns(room, known.told, job.payload["through"], SESSION)
            through = turns[-1].id if len(turns) == SESSION else job.payload["through"]
            episode = await self._episode(room, turns, through) if turns else None
            await self._rooms.tell(known, through, episode, turns)
        await self._embed(room)

    async def study(self, job: Job) -> None:
        """Look for facts about people in a room's turns up to one."""
        room = job.payload["room"]
        while await self._parts.learns():
            known = await self._rooms.progress(room)
            if known.studied >= job.payload["through"]:
                break
            turns = await self._rooms.turns(room, known.studied, job.payload["through"], STUDIED)
            through = turns[-1].id if len(turns) == STUDIED else job.payload["through"]
            facts = await self._facts(room, turns) if turns else []
            await self._rooms.study(known, through, facts, self._now() - _UNCONFIRMED)
        await self._embed(room)

    async def condense(self, job: Job) -> None:
        """Make one episode of a room's oldest notes."""
        room = job.payload["room"]
        memories = self._parts.memories
        while len(notes := await memories.newest(room, Layer.NOTE, -1)) >= MOST_NOTES:
            oldest = notes[:CONDENSED]
            await self._rooms.condense(oldest, await self._condensed(room, oldest))
        await self._embed(room)

    async def embed(self, job: Job) -> None:
        """Give a room's memories their vectors."""
        await self._embed(job.payload["room"])

    async def _summary(
        self, known: Progress, turns: Sequence[RoomTurn], through: int
    ) -> Memory | None:
        if not turns:
            return None
        old = await self._parts.memories.newest(known.room, Layer.SUMMARY, 1)
        text = await self._asked(
            known.room, "summary", asking.summary_messages(old[0].text if old else "", turns)
        )
        return self._memory(
            Layer.SUMMARY,
            known.room,
            _cut(text, asking.LONGEST_SUMMARY),
            first_turn=old[0].first_turn if old else turns[0].id,
            last_turn=through,
            begun=old[0].begun if old else turns[0].time,
        )

    async def _episode(self, room: str, turns: Sequence[RoomTurn], through: int) -> Memory:
        text = await self._asked(room, "episode", asking.episode_messages(turns))
        return self._memory(
            Layer.EPISODE,
            room,
            _cut(text, asking.LONGEST_EPISODE),
            first_turn=turns[0].id,
            last_turn=through,
            begun=turns[0].time,
        )

    async def _fill(self, known: Progress, gap: Gap) -> None:
        turns = await self._rooms.turns(known.room, gap.first_turn - 1, gap.last_turn, _GAP)
        episode = await self._episode(known.room, turns, gap.last_turn) if turns else None
        await self._rooms.fill(known, gap, episode, turns)

    async def _facts(self, room: str, turns: Sequence[RoomTurn]) -> list[Memory]:
        messages = asking.facts_messages(turns)
        answer = await self._asked(room, "facts", messages, asking.FACTS_FORMAT)
        people = {turn.person for turn in turns}
        return [
            self._memory(
                Layer.FACT,
                room,
                said.value,
                subject=said.subject,
                key=said.key,
                source=said.turn.person,
                confidence=OWN if said.turn.person == said.subject else HEARSAY,
                conversation=said.turn.conversation,
                first_turn=said.turn.id,
                last_turn=said.turn.id,
                begun=said.turn.time,
            )
            for said in asking.facts_in(answer, turns, people)
        ]

    async def _condensed(self, room: str, notes: Sequence[Memory]) -> Memory:
        """An episode of notes; without the model, the beginning of each."""
        texts = [note.text for note in notes]
        if await self._parts.learns():
            text = await self._asked(room, "episode", asking.notes_messages(texts))
        else:
            each = asking.LONGEST_EPISODE // len(texts) - 1
            text = "\n".join(asking.one_line(text, each) for text in texts)
        return self._memory(
            Layer.EPISODE,
            room,
            _cut(text, asking.LONGEST_EPISODE),
            key="notes",
            first_turn=notes[0].first_turn,
            last_turn=max(note.last_turn for note in notes),
            begun=min(note.begun or note.time for note in notes),
        )

    async def _asked(
        self,
        room: str,
        purpose: str,
        messages: Sequence[Message],
        answer_format: Mapping[str, Any] | None = None,
    ) -> str:
        call = Call(
            f"{self._parts.tendril}/memory",
            "background",
            await self._parts.models.fast(),
            purpose=purpose,
            room=room,
            temperature=0.0,
            max_tokens=_TOKENS[purpose],
        )
        try:
            reply = await self._parts.client.chat(messages, call, response_format=answer_format)
        except Refused:
            if answer_format is None:
                raise
            reply = await self._parts.client.chat(messages, call)  # it knows no such formats
        if not reply.text:
            raise NothingSaid
        _log.info("memory.made", purpose=purpose, tokens=reply.usage.prompt)
        return reply.text

    async def _embed(self, room: str) -> None:
        """Give the room's memories their vectors, as long as the server makes any."""
        while self._parts.embeds:
            missing = await self._parts.vectors.missing(room, _BATCH)
            if not missing:
                return
            call = Call(f"{self._parts.tendril}/memory", "background", room=room)
            texts = [text for _, text in missing]
            model, vectors = await self._parts.client.embed(texts, call)
            made = dict(zip([memory for memory, _ in missing], vectors, strict=True))
            await self._parts.vectors.add(model, made)

    def _memory(self, layer: Layer, room: str, text: str, **values: Any) -> Memory:
        return Memory(layer=layer, room=room, text=text, time=self._now(), **values)

    def _now(self) -> datetime:
        return self._parts.clock.now()


def _cut(text: str, longest: int) -> str:
    """Text of bounded length, ended where a sentence or a line ends, if one does."""
    if len(text) <= longest:
        return text
    kept = text[:longest]
    end = max(kept.rfind("\n"), kept.rfind(". ") + 1)
    return kept[:end] if end > longest // 2 else kept
