"""Semantic search: lines are embedded in the background, and a query finds the nearest vectors.

Complements full-text search, for answers in other words than the question and for searches that
found nothing.
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

_BATCH_SIZE = 16  # lines embedded at once
_PASS_INTERVAL = 60.0  # seconds between passes over new lines, and until a failed one is repeated
_AFTER_ALL_IDS = 1 << 62  # greater than any event id
_FULL_PASS_EVERY = 60  # every 60th pass covers the whole log
_MAX_TEXT_LENGTH = 1_000  # characters of a line that are embedded
_SESSION = "meaning"

_log = structlog.get_logger()


class SemanticIndex:
    """Vector index over the log in `database`; `client` computes the embeddings."""

    def __init__(self, client: AgentClient, database: Database) -> None:
        self._client = client
        self._vectors = VectorIndex(database)

    async def search(self, text: str, within: Query) -> SearchPage:
        """Return a page of the lines of people that are nearest in meaning to `text`, best first.

        Raises ModelError, and StorageError if the log has no vectors, or those of another model.
        """
        # Vectors of different models cannot be compared.
        known = await self._vectors.model()
        if known is None:
            raise Unavailable("no line is indexed by meaning: set STORAGE_SEMANTIC=true")
        model, vectors = await self._client.embed([text], RequestOptions(_SESSION), query=True)
        if model != known:
            raise Unavailable("the lines are being indexed by another model; try again later")
        return await self._vectors.nearest(vectors[0], within)

    async def run(self) -> None:
        """Embed all lines that have no vector yet, newest first, and new ones, until cancelled.

        Requests have background priority.
        """
        newest, passes = 0, 0
        while True:
            try:
                # Imported lines have ids among older ones, so the whole log is checked regularly.
                after = newest if passes % _FULL_PASS_EVERY else 0
                newest = max(newest, await self.index_pass(after))
                passes += 1
            except ModelError as error:
                _log.warning("meaning.no_vectors", reason=type(error).__name__, error=str(error))
            except StorageError as error:
                _log.error("meaning.not_kept", error=str(error))
            await asyncio.sleep(_PASS_INTERVAL)

    async def index_pass(self, after: int = 0) -> int:
        """Embed the lines without a vector in one pass from the newest back to the id `after`.

        Returns the newest id that had no vector, 0 if all had one. Raises ModelError and
        StorageError, keeping the vectors stored so far.
        """
        count, first, before = 0, 0, _AFTER_ALL_IDS
        while lines := await self._vectors.missing(after, before, _BATCH_SIZE):
            ids = [event_id for event_id, _ in lines]
            texts = [text[:_MAX_TEXT_LENGTH] for _, text in lines]
            model, vectors = await self._client.embed(texts, RequestOptions(_SESSION, "background"))
            await self._vectors.use_model(model)
            await self._vectors.add(dict(zip(ids, vectors, strict=True)))
            count, first, before = count + len(lines), max(first, ids[0]), ids[-1]
        await self._vectors.mark_backfill_complete()
        if count:
            _log.info("meaning.indexed", lines=count)
        return first


async def nearest_events(
    semantic_index: SemanticIndex | None, text: str, within: Query
) -> list[Event]:
    """Return the nearest lines, best first; none without an index or if the search fails."""
    if semantic_index is None or not text.strip():
        return []
    try:
        page = await semantic_index.search(text, within)
    except (ModelError, StorageError) as error:
        _log.warning("meaning.not_searched", reason=type(error).__name__, error=str(error))
        return []
    return [hit.event for hit in page.hits]
