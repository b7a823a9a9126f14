"""Retrieval: the lines of the log that answer a question, the same for every caller.

Candidates are found by their words and, among the newest lines of each channel, by their meaning
(storage/passages/passages.py). The best candidates without a vector are embedded when the question
is asked, as many as there is time for: embeddings tell well which of some lines is the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import structlog

from llm.client.client import RequestOptions
from llm.messages.errors import ModelError, RequestRejected
from storage.chat_log.event_table import Query
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.passages.passages import (
    MOST_RANKED,
    PEOPLE,
    LineFilter,
    Passage,
    find_passages,
)
from storage.passages.words import asks
from storage.search.models import SearchPage
from storage.search.query_parser import ParsedQuery, parse
from storage.search.vectors import (
    DIMENSIONS,
    MAX_TEXT_LENGTH,
    MODEL,
    Likeness,
    VectorIndex,
    encode,
    find_near,
    likeness,
)

SURE = 0.75
"""The score from which on a line is given as the answer."""
PERHAPS = 0.2
"""The score from which on a line, or two in sum, are given as a possible answer."""

_MAX_ANSWERS = 3  # lines that are shown for a text typed into a search
_MAX_EMBEDDED = 3  # lines that are embedded for a question
_HOPELESS = 0.02  # the score below which a line is not worth that
_PATIENCE = 0.5  # seconds to wait for embeddings; without them words alone decide
_REST = 10.0  # seconds without embeddings after none could be had
_BATCH_SIZE = 4  # lines embedded at once in the background
_PAUSE = 5.0  # seconds between two looks for new lines
_PAUSE_AFTER_ERROR = 60.0
_FULL_PASS_EVERY = 60  # every 60th look covers all lines that should have a vector
_SESSION = "meaning"
_OK = 200  # the status of such an answer

_log = structlog.get_logger()


class TextEmbedder(Protocol):
    """A source of embeddings, such as the client of the agent server."""

    async def embed(
        self,
        texts: Sequence[str],
        options: RequestOptions,
        *,
        model: str,
        query: bool = False,
    ) -> list[list[float]]:
        """Return a vector for each text. Raises ModelError."""


@dataclass(frozen=True, slots=True)
class Found:
    """The lines that may answer a question, best first.

    `searched_back_to` is set if there was no time to search the whole log.
    """

    passages: tuple[Passage, ...] = ()
    searched_back_to: datetime | None = None

    @property
    def is_sure(self) -> bool:
        """True if the first line is likely the answer."""
        return bool(self.passages) and self.passages[0].score >= SURE

    @property
    def shown(self) -> tuple[Passage, ...]:
        """The lines worth showing: those that are nearly as good as the first one if that is sure,
        else possible answers."""
        least = self.passages[0].score - 0.1 if self.is_sure else PERHAPS
        good = (each for each in self.passages if each.score >= max(least, PERHAPS))
        return tuple(each for each in good if each.is_related)


NOTHING = Found()
"""No line."""


class Retrieval:
    """Finds lines of `log`; `embedder` is None where nothing is compared by meaning."""

    def __init__(self, log: ChatLog, embedder: TextEmbedder | None = None) -> None:
        self.log = log
        self._embedder = embedder
        self._resting_until = 0.0

    @property
    def knows_meaning(self) -> bool:
        """True if lines are also found by their meaning."""
        return self._embedder is not None

    async def find(
        self,
        question: str,
        within: Query,
        *,
        vector: Sequence[float] | None = None,
        line_filter: LineFilter = PEOPLE,
    ) -> Found:
        """Return at most `within.limit` lines that may answer a question.

        `vector` is the question's embedding as a query, if the caller has it. Nobody who has opted
        out is found. Raises Unavailable.
        """
        vector = vector or await self._embed_question(question)
        wanted = replace(within, limit=max(within.limit, MOST_RANKED))
        found = await self.log.read(find_passages, question, wanted, line_filter, vector)
        best = [
            each.event
            for each in found.items[:_MAX_EMBEDDED]
            if each.likeness is None and each.score >= _HOPELESS
        ]
        texts = [event.text[:MAX_TEXT_LENGTH] for event in best]
        if vector and best and (made := await self._embed(texts)):
            asked = encode(vector)
            near = [likeness(asked, encode(each)) for each in made]
            known = zip(best, near, strict=True)
            found = found.with_likeness({e.id: Likeness(each, each) for e, each in known})
        return Found(found.items[: within.limit], found.searched_back_to)

    async def answers(self, text: str, within: Query, line_filter: LineFilter = PEOPLE) -> Found:
        """Return the lines that are shown for a text typed into a search: the few that may answer
        it, if it is a plain question. Raises Unavailable."""
        parsed = parse(text, now=datetime.now(UTC))
        has_operators = parsed != ParsedQuery(clauses=parsed.clauses) or len(parsed.clauses) != 1
        if has_operators or not asks(text):
            return NOTHING
        wanted = replace(within, limit=min(within.limit, _MAX_ANSWERS))
        found = await self.find(text, wanted, line_filter=line_filter)
        return replace(found, passages=found.shown)

    async def near(self, text: str, within: Query) -> SearchPage | None:
        """Return the newer lines of people that are nearest in meaning to a text, best first; None
        if the text cannot be embedded. Raises Unavailable."""
        vector = await self._embed_question(text)
        return None if vector is None else await self.log.read(find_near, vector, within)

    async def _embed_question(self, question: str) -> Sequence[float] | None:
        made = await self._embed([question[:MAX_TEXT_LENGTH]], query=True)
        return made[0] if made else None

    async def _embed(
        self, texts: Sequence[str], *, query: bool = False
    ) -> Sequence[Sequence[float]]:
        """Return embeddings, none if they cannot be had in time."""
        is_resting = time.monotonic() < self._resting_until
        if self._embedder is None or is_resting or not all(text.strip() for text in texts):
            return []
        options = RequestOptions(_SESSION)
        try:
            async with asyncio.timeout(_PATIENCE):
                made = await self._embedder.embed(texts, options, query=query, model=MODEL)
        except (ModelError, TimeoutError) as error:
            # Not each question has to wait for a server that is away.
            self._resting_until = time.monotonic() + _REST
            _log.info("meaning.not_compared", reason=type(error).__name__)
            return []
        return made if all(len(each) == DIMENSIONS for each in made) else []


class LineEmbedding:
    """Embeds the newest lines of each channel, with background priority."""

    def __init__(self, database: Database, embedder: TextEmbedder) -> None:
        self._vectors = VectorIndex(database)
        self._embedder = embedder

    async def run(self) -> None:
        """Embed all lines that should have a vector, newest first, and new ones soon after they are
        said, until cancelled."""
        newest, looks, trouble = 0, 0, ""
        while True:
            pause = _PAUSE
            try:
                # Imported lines have ids among older ones, so all are looked through regularly.
                newest = max(newest, await self.embed_missing(newest if looks else 0))
                looks, trouble = (looks + 1) % _FULL_PASS_EVERY, ""
            except (ModelError, StorageError) as error:
                pause = _PAUSE_AFTER_ERROR
                if str(error) != trouble:  # once: a server may lack its model for months
                    trouble = str(error)
                    _log.warning("meaning.no_vectors", reason=type(error).__name__, error=trouble)
            await asyncio.sleep(pause)

    async def embed_missing(self, after: int = 0) -> int:
        """Embed the lines after the id `after` that lack a vector. Return the newest one's id, 0 if
        none did. Raises ModelError and StorageError, keeping the vectors stored so far."""
        await self._vectors.open()
        options, newest = RequestOptions(_SESSION, "background"), 0
        while lines := await self._vectors.missing(after, _BATCH_SIZE):
            texts = list(dict.fromkeys(text for e in lines for text in (e.text, e.in_talk) if text))
            made = await self._embedder.embed(texts, options, model=MODEL)
            if any(len(each) != DIMENSIONS for each in made):
                raise RequestRejected("the embeddings are of another model", _OK)
            await self._vectors.add(lines, dict(zip(texts, made, strict=True)))
            newest = max(newest, *(line.id for line in lines))
        return newest
