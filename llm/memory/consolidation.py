"""Memory consolidation: jobs that turn conversation turns into a summary, episodes and facts.

They work in batches. The result of each is stored in one transaction with its watermark
(storage/memory/consolidation_state.py), so that an interrupted job resumes after its last batch,
and a repeated one finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import structlog

from llm.client.client import RequestOptions
from llm.client.profile import Profile
from llm.memory import prompts
from llm.memory.services import (
    EPISODE_TURNS,
    FACT_BATCH_TURNS,
    MAX_NOTES,
    MERGED_NOTES,
    JobKind,
    MemoryServices,
)
from llm.messages.errors import ContextTooLong, RequestRejected
from llm.messages.message import Message
from llm.scheduling.worker import Handler
from storage.memory.consolidation_state import RoomTurn, Watermarks
from storage.memory.memories import HEARSAY, OWN, Memory, MemoryKind
from storage.queues.jobs import Job

_SUMMARY_BATCH_TURNS = 40  # turns that go into a summary at once
_MAX_GAP_TURNS = 200  # turns, at most, from which a deleted episode is rebuilt
# How long a learnt fact is kept unless it is learnt again.
_UNCONFIRMED_LIFETIME = timedelta(days=90)
_EMBEDDING_BATCH = 64  # texts embedded by one request
# Of an answer by purpose, for models that ramble; what others think would count against it.
_MAX_ANSWER_TOKENS = {"summary": 400, "episode": 120, "facts": 300}

_log = structlog.get_logger()


class EmptyReply(Exception):
    """The model's reply was empty."""


class Consolidator:
    """The handlers of the consolidation jobs. All may raise ModelError, StorageError and
    EmptyReply; the worker then retries the job."""

    def __init__(self, services: MemoryServices) -> None:
        self._services = services
        self._rooms = services.rooms

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by kind of job."""
        return {
            JobKind.SUMMARISE: self.summarise,
            JobKind.RECORD_EPISODES: self.record_episodes,
            JobKind.EXTRACT_FACTS: self.extract_facts,
            JobKind.MERGE_NOTES: self.merge_notes,
            JobKind.EMBED: self.embed,
        }

    async def summarise(self, job: Job) -> None:
        """Extend a room's summary up to a turn."""
        room, size = job.payload["room"], _SUMMARY_BATCH_TURNS
        while await self._services.learns():
            watermarks = await self._rooms.progress(room)
            target = max(job.payload["through"], watermarks.wanted)
            if watermarks.summary >= target:
                break
            turns = await self._rooms.turns(room, watermarks.summary, target, size)
            # A batch that is not full has all turns up to the target, even if its last id is lower.
            through = turns[-1].id if len(turns) == size else target
            try:
                summary = await self._summary(watermarks, turns, through)
            except ContextTooLong:
                if size == 1:
                    raise
                size //= 2  # try again with fewer turns
                continue
            await self._rooms.advance_summary(watermarks, through, summary, turns)
        await self.embed(job)

    async def record_episodes(self, job: Job) -> None:
        """Make episodes of a room's turns up to one, and rebuild deleted ones first."""
        room = job.payload["room"]
        while await self._services.learns():
            watermarks = await self._rooms.progress(room)
            gaps = await self._rooms.gaps(room)
            if gaps:  # one at a time, with the watermarks read again after each
                gap = gaps[0]
                turns = await self._rooms.turns(
                    room, gap.first_turn - 1, gap.last_turn, _MAX_GAP_TURNS
                )
                episode = await self._episode(room, turns, gap.last_turn) if turns else None
                await self._rooms.fill(watermarks, gap, episode, turns)
                continue
            if watermarks.episodes >= job.payload["through"]:
                break
            turns = await self._rooms.turns(
                room, watermarks.episodes, job.payload["through"], EPISODE_TURNS
            )
            through = turns[-1].id if len(turns) == EPISODE_TURNS else job.payload["through"]
            episode = await self._episode(room, turns, through) if turns else None
            await self._rooms.advance_episodes(watermarks, through, episode, turns)
        await self.embed(job)

    async def extract_facts(self, job: Job) -> None:
        """Extract facts about people from a room's turns up to one."""
        room = job.payload["room"]
        while await self._services.learns():
            watermarks = await self._rooms.progress(room)
            if watermarks.facts >= job.payload["through"]:
                break
            turns = await self._rooms.turns(
                room, watermarks.facts, job.payload["through"], FACT_BATCH_TURNS
            )
            through = turns[-1].id if len(turns) == FACT_BATCH_TURNS else job.payload["through"]
            facts = await self._facts(room, turns) if turns else []
            await self._rooms.advance_facts(
                watermarks, through, facts, self._services.now() - _UNCONFIRMED_LIFETIME
            )
        await self.embed(job)

    async def merge_notes(self, job: Job) -> None:
        """Merge a room's oldest notes into an episode, as long as it has too many."""
        room = job.payload["room"]
        memories = self._services.memories
        while len(notes := await memories.latest(room, MemoryKind.NOTE)) >= MAX_NOTES:
            oldest = notes[:MERGED_NOTES]  # the store returns the newest ones, oldest first
            await self._rooms.replace_notes(oldest, await self._merge(room, oldest))
        await self.embed(job)

    async def embed(self, job: Job) -> None:
        """Compute the missing vectors of a room's memories, if embeddings are enabled."""
        room = job.payload["room"]
        while self._services.embeds:
            missing = await self._services.vectors.missing(room, _EMBEDDING_BATCH)
            if not missing:
                return
            options = RequestOptions(self._services.session, "background", room=room)
            texts = [text for _, text in missing]
            model, vectors = await self._services.client.embed(texts, options)
            made = dict(zip([memory for memory, _ in missing], vectors, strict=True))
            await self._services.vectors.add(model, made)

    async def _summary(
        self, watermarks: Watermarks, turns: Sequence[RoomTurn], through: int
    ) -> Memory | None:
        if not turns:
            return None
        old = await self._services.memories.latest(watermarks.room, MemoryKind.SUMMARY, 1)
        longest = (await self._profile()).message_length
        messages = prompts.summary_messages(old[0].text if old else "", turns, longest)
        text = await self._ask_model(watermarks.room, "summary", messages)
        return self._memory(
            MemoryKind.SUMMARY,
            watermarks.room,
            _truncate(text, prompts.MAX_SUMMARY_LENGTH),
            first_turn=old[0].first_turn if old else turns[0].id,
            last_turn=through,
            begun=old[0].begun if old else turns[0].time,
        )

    async def _episode(self, room: str, turns: Sequence[RoomTurn], through: int) -> Memory:
        longest = (await self._profile()).message_length
        text = await self._ask_model(room, "episode", prompts.episode_messages(turns, longest))
        return self._memory(
            MemoryKind.EPISODE,
            room,
            _truncate(text, prompts.MAX_EPISODE_LENGTH),
            first_turn=turns[0].id,
            last_turn=through,
            begun=turns[0].time,
        )

    async def _facts(self, room: str, turns: Sequence[RoomTurn]) -> list[Memory]:
        messages = prompts.facts_messages(turns, (await self._profile()).message_length)
        answer = await self._ask_model(room, "facts", messages, prompts.FACTS_FORMAT)
        people = {turn.person for turn in turns}
        return [
            self._memory(
                MemoryKind.FACT,
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
            for said in prompts.facts_in(answer, turns, people)
        ]

    async def _merge(self, room: str, notes: Sequence[Memory]) -> Memory:
        """Return an episode made of notes; without the model, of the beginning of each note."""
        texts = [note.text for note in notes]
        if await self._services.learns():
            text = await self._ask_model(room, "episode", prompts.notes_messages(texts))
        else:
            each = prompts.MAX_EPISODE_LENGTH // len(texts) - 1
            text = "\n".join(prompts.one_line(text, each) for text in texts)
        return self._memory(
            MemoryKind.EPISODE,
            room,
            _truncate(text, prompts.MAX_EPISODE_LENGTH),
            key="notes",
            first_turn=notes[0].first_turn,
            last_turn=max(note.last_turn for note in notes),
            begun=min(note.begun or note.time for note in notes),
        )

    async def _profile(self) -> Profile:
        """Return the profile of the model that makes the memories."""
        catalog = self._services.catalog
        return Profile.from_card(await catalog.card(await catalog.fast()))

    async def _ask_model(
        self,
        room: str,
        purpose: str,
        messages: Sequence[Message],
        answer_format: Mapping[str, Any] | None = None,
    ) -> str:
        profile = await self._profile()
        options = RequestOptions(
            self._services.session,
            "background",
            await self._services.catalog.fast(),
            purpose=purpose,
            room=room,
            temperature=0.0,
            max_tokens=_MAX_ANSWER_TOKENS[purpose] if profile.max_tokens else 0,
            filters_output=profile.filters_output,
        )
        try:
            reply = await self._services.client.chat(
                messages, options, response_format=answer_format
            )
        except RequestRejected:
            if answer_format is None:
                raise
            # The server may not support `response_format`; the parser of facts is lenient.
            reply = await self._services.client.chat(messages, options)
        if not reply.text:
            raise EmptyReply
        _log.info("memory.made", purpose=purpose, tokens=reply.usage.prompt)
        if reply.is_cut and answer_format is None:
            return _truncate(reply.text, len(reply.text) - 1)  # to its last whole sentence
        return reply.text

    def _memory(self, layer: MemoryKind, room: str, text: str, **values: Any) -> Memory:
        return Memory(layer=layer, room=room, text=text, time=self._services.now(), **values)


def _truncate(text: str, longest: int) -> str:
    """Cut a text to `longest` characters, at the last end of a sentence or line in its second
    half if there is one."""
    if len(text) <= longest:
        return text
    kept = text[:longest]
    end = max(kept.rfind("\n"), kept.rfind(". ") + 1)
    return kept[:end] if end > longest // 2 else kept
