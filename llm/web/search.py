"""Web search with public search engines or a SearXNG server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2
import structlog

from llm.web.errors import ExtraMissing, PageUnreadable
from llm.web.settings import PUBLIC_ENGINES

_TIMEOUT = 15.0  # seconds
_NO_ANSWER = "the search engine gave no answer; try again later"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page that was found, with the engine's excerpt of it."""

    title: str
    url: str
    snippet: str


async def find_pages(engine: str, query: str, limit: int) -> Sequence[SearchResult]:
    """Return at most `limit` pages, best first, found by the `engine` that `[pages] search` names.
    Raises ExtraMissing and PageUnreadable."""
    if engine == PUBLIC_ENGINES:
        try:
            import ddgs
        except ImportError as error:
            raise ExtraMissing from error
        try:
            # ddgs has a blocking API.
            rows = await asyncio.to_thread(
                lambda: ddgs.DDGS(timeout=int(_TIMEOUT)).text(query, max_results=limit)
            )
        except Exception as error:
            # ddgs passes on errors of its HTTP client and of pages that have changed; to whoever
            # asks they all mean the same. Their messages may contain the query.
            _log.warning("search.failed", error=type(error).__name__)
            raise PageUnreadable(_NO_ANSWER) from error
        return _results(rows, "href", "body", limit)
    # A SearXNG server. The operator has configured its URL, so it may be on the local network.
    asked = {"q": query, "format": "json", "safesearch": "1"}
    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
            response = await client.get(f"{engine}/search", params=asked)
            response.raise_for_status()
            found = response.json()["results"]
    except httpx2.HTTPStatusError as error:
        if error.response.status_code == 403:
            raise PageUnreadable(
                "the SearXNG server does not give JSON: its operator lists json under"
                " search.formats in settings.yml"
            ) from error
        raise PageUnreadable(_NO_ANSWER) from error
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        raise PageUnreadable(_NO_ANSWER) from error
    return _results(found, "url", "content", limit)


def _results(found: object, url: str, snippet: str, limit: int) -> Sequence[SearchResult]:
    """Return at most `limit` results from untrusted JSON, without malformed ones and URLs other
    than http and https. `url` and `snippet` are the engine's keys for these fields."""
    rows = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    results = (
        SearchResult(*(str(row.get(key) or "") for key in ("title", url, snippet))) for row in rows
    )
    return [each for each in results if each.url.startswith(("http://", "https://"))][:limit]
