"""Search by meaning: lines become vectors in the background, a question finds the nearest.

It is another way to search, not a better one: words that are there are found by words. It is for
questions whose answer was put in other words, and for searches that found nothing.
"""

from __future__ import annotations

import asyncio

import structlog

from llm.client.client import AgentClient, RequestOptions
from llm.messages.errors import ModelError
from storage.chat_log.event import Event
from storage.chat_log.query import Query
from storage.db.database import Database
from storage.db.errors import StorageError, Unavailable
from storage.search.models import SearchPage
from storage.search.vectors import VectorIndex

_BATCH = 16  # lines embedded at once
_PAUSE = 60.0  # seconds until new lines, or a server that is away, are looked for again
_NEWEST = 1 << 62
_WHOLE = 60  # one of so many looks is at the whole log
_LONGEST = 1_000  # characters of a line that are embedded
_SESSION = "meaning"

_log = structlog.get_logger()


class SemanticIndex:
    """Finds lines of the log in `database`; `client` makes the vectors."""

    def __init__(self, client: AgentClient, database: Database) -> None:
        self._client = client
        self._vectors = VectorIndex(database)

    async def search(self, text: str, within: Query) -> SearchPage:
        """Return a page of the lines of people that are nearest in meaning, best first.

        Raises ModelError, and StorageError when there are no vectors or nothing to compare with.
        """
        known = await self._vectors.model()
        if known is None:
            raise Unavailable("no line is indexed by meaning: set STORAGE_SEMANTIC=true")
        model, vectors = await self._client.embed([text], RequestOptions(_SESSION), query=True)
        if model != known:
            raise Unavailable("the lines are being indexed by another model; try again later")
        return await self._vectors.nearest(vectors[0], within)

    async def index(self) -> None:
        """Give every line its vector, newest first, until cancelled; yields to everything else."""
        newest, passes = 0, 0
        while True:
            try:
                # What is imported lies between older lines: now and then all are looked at.
                after = newest if passes % _WHOLE else 0
                newest = max(newest, await self.catch_up(after))
                passes += 1
            except ModelError as error:
                _log.warning("meaning.no_vectors", reason=type(error).__name__, error=str(error))
            except StorageError as error:
                _log.error("meaning.not_kept", error=str(error))
            await asyncio.sleep(_PAUSE)

    async def catch_up(self, after: int = 0) -> int:
        """Go once from the newest line back to the id `after`; the newest id that had no vector.

        Raises ModelError and StorageError; what was done is kept.
        """
        count, first, before = 0, 0, _NEWEST
        while lines := await self._vectors.missing(after, before, _BATCH):
            ids = [event_id for event_id, _ in lines]
            texts = [text[:_LONGEST] for _, text in lines]
            model, vectors = await self._client.embed(texts, RequestOptions(_SESSION, "background"))
            await self._vectors.use_model(model)
            await self._vectors.add(dict(zip(ids, vectors, strict=True)))
            count, first, before = count + len(lines), max(first, ids[0]), ids[-1]
        await self._vectors.reached_the_end()
        if count:
            _log.info("meaning.indexed", lines=count)
        return first


async def nearest_events(
    semantic_index: SemanticIndex | None, text: str, within: Query
) -> list[Event]:
    """Return the nearest lines, best first; none without an index, or when it cannot be asked."""
    if semantic_index is None or not text.strip():
        return []
    try:
        page = await semantic_index.search(text, within)
    except (ModelError, StorageError) as error:
        _log.warning("meaning.not_searched", reason=type(error).__name__, error=str(error))
        return []
    return [hit.event for hit in page.hits]
