"""The agent server's embedding model for benchmarks, with a cache of its results in a file."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

from agent_server.engines.embeddings import EmbeddingEngine
from agent_server.model_files import embedder
from agent_server.settings.models import ModelSettings
from llm.client.client import RequestOptions
from llm.reading.reading import MOST_TOKENS
from storage.search.vectors import MODEL
from terrarium.config import Config

_BATCH = 64


def kept_folder() -> Path:
    """Return the folder of what benchmarks keep: `BENCH_LOGS`, or one in the temporary files."""
    kept = os.environ.get("BENCH_LOGS")
    folder = Path(kept) if kept else Path(tempfile.gettempdir()) / "terrarium-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class BenchEmbedder:
    """Embeddings without a server. Those by `cached` are kept in the database `cache`."""

    def __init__(self, engine: EmbeddingEngine, cache: sqlite3.Connection) -> None:
        self._engine, self._cache = engine, cache

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[BenchEmbedder]:
        """Start the model, with the cache in `kept_folder()`. The model is fetched if it is
        missing. Raises PullError."""
        models = Config({}, None, Path("data")).section(ModelSettings).folder
        embedder.pull(models)
        engine = EmbeddingEngine(models)
        with closing(sqlite3.connect(kept_folder() / "embeddings.db")) as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS made"
                " (text TEXT, query INTEGER, vector BLOB, PRIMARY KEY (text, query))"
            )
            async with engine.lifespan():
                yield cls(engine, connection)

    async def embed(
        self,
        texts: Sequence[str],
        options: RequestOptions | None = None,
        *,
        query: bool = False,
        model: str = MODEL,
    ) -> list[list[float]]:
        """Return the embeddings of texts, of queries as they are read (`MOST_TOKENS`)."""
        kind = {"input_type": "query", "truncate_prompt_tokens": MOST_TOKENS} if query else {}
        made = await self._engine.embeddings(
            {"input": list(texts), "encoding_format": "float", **kind}
        )
        return [each["embedding"] for each in made["data"]]

    async def cached(self, texts: Sequence[str], *, query: bool = False) -> dict[str, list[float]]:
        """Return the embeddings of texts by text, from the cache if it has them."""
        found, missing = {}, []
        for text in dict.fromkeys(texts):
            sql = "SELECT vector FROM made WHERE text = ? AND query = ?"
            row = self._cache.execute(sql, [text, query]).fetchone()
            if row:
                found[text] = array("f", row[0]).tolist()
            else:
                missing.append(text)
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            made = await self.embed(batch, query=query)
            for text, vector in zip(batch, made, strict=True):
                found[text] = vector
                self._cache.execute(
                    "INSERT INTO made VALUES (?, ?, ?)", [text, query, array("f", vector).tobytes()]
                )
            self._cache.commit()
        return found
