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


class SearxngSearch:
    """A SearXNG server, whose settings must allow the JSON format. Its URL is configured by the
    operator and trusted, so it may be on the local network."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def search(self, query: str, limit: int) -> Sequence[SearchResult]:
        """Return at most `limit` pages, best first. Raises PageUnreadable."""
        asked = {"q": query, "format": "json", "safesearch": "1"}
        try:
            async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
                response = await client.get(f"{self._url}/search", params=asked)
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


class DdgsSearch:
    """Public search engines, queried with the library ddgs."""

    async def search(self, query: str, limit: int) -> Sequence[SearchResult]:
        """Return at most `limit` pages, best first. Raises ExtraMissing and PageUnreadable."""
        try:
            import ddgs
        except ImportError as error:
            raise ExtraMissing from error
        try:
            # ddgs has a blocking API.
            found = await asyncio.to_thread(
                lambda: ddgs.DDGS(timeout=int(_TIMEOUT)).text(query, max_results=limit)
            )
        except Exception as error:
            # ddgs passes on errors of its HTTP client and of pages that have changed; to whoever
            # asks they all mean the same. Their messages may contain the query.
            _log.warning("search.failed", error=type(error).__name__)
            raise PageUnreadable(_NO_ANSWER) from error
        return _results(found, "href", "body", limit)


WebSearch = SearxngSearch | DdgsSearch
"""A search engine."""


def create_search(setting: str) -> WebSearch | None:
    """Return the search engine for the setting `[pages] search`, None if that is empty."""
    if not setting:
        return None
    return DdgsSearch() if setting == PUBLIC_ENGINES else SearxngSearch(setting)


def _results(found: object, url: str, snippet: str, limit: int) -> Sequence[SearchResult]:
    """Return at most `limit` results from untrusted JSON, without malformed ones and URLs other
    than http and https. `url` and `snippet` are the engine's keys for these fields."""
    rows = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    results = (
        SearchResult(*(str(row.get(key) or "") for key in ("title", url, snippet))) for row in rows
    )
    return [each for each in results if each.url.startswith(("http://", "https://"))][:limit]
