"""Tools that open web pages and search the web."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import httpx2
import structlog
from pydantic import Field

from llm.tools.consent import to_open
from llm.tools.toolbox import ImageResult, ResultLength, ToolError, tool
from llm.web.errors import ExtraMissing, PageError, PageUnreadable
from llm.web.fetcher import Fetcher
from llm.web.reader import read_page
from llm.web.settings import PUBLIC_ENGINES, PagesSettings
from terrarium.config import Config

_NOTE_LENGTH = 100  # characters of a result that are kept free for the number of the part
_MAX_EXCERPT_LENGTH = 200  # characters of a page that a search has found
_TOOL_TIMEOUT = 45.0
_SEARCH_TIMEOUT = 15.0  # seconds
_NO_ANSWER = "the search engine gave no answer; try again later"

_log = structlog.get_logger()


class PageTools:
    """The tool that opens pages."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    @tool(
        reads=True,
        research=True,
        timeout=_TOOL_TIMEOUT,
        activity="reading {url}",
        links="found",
        asked=to_open,
    )
    async def read_page(
        self,
        most: ResultLength,
        url: Annotated[str, Field(max_length=2_000, description="http or https address")],
        part: Annotated[int, Field(ge=1, le=50, description="of a long page")] = 1,
    ) -> str | ImageResult:
        """Open a web page, repository, issue, package, paste or image whose address the person who
        asks has written or a tool has found, and read it."""
        try:
            page = await read_page(self._fetcher, url)
        except PageError as error:
            raise ToolError(f"the page was not read: {error}") from error
        text = page.render()
        if page.image:
            return ImageResult(text, page.image)
        length = most - _NOTE_LENGTH
        parts = max(1, -(-len(text) // length))
        if part > parts:
            raise ToolError(f"the page has {parts} part{'s' if parts > 1 else ''} only")
        shown = text[(part - 1) * length : part * length]
        return f"{shown}\n(part {part} of {parts})" if parts > 1 else shown


async def find_pages(engine: str, query: str, limit: int) -> Sequence[tuple[str, str, str]]:
    """Return title, address and excerpt of at most `limit` pages, best first, found by the `engine`
    that `[pages] search` names. Raises ExtraMissing and PageUnreadable."""
    if engine == PUBLIC_ENGINES:
        try:
            import ddgs
        except ImportError as error:
            raise ExtraMissing from error
        try:
            # ddgs has a blocking API.
            rows = await asyncio.to_thread(
                lambda: ddgs.DDGS(timeout=int(_SEARCH_TIMEOUT)).text(query, max_results=limit)
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
        async with httpx2.AsyncClient(timeout=_SEARCH_TIMEOUT, trust_env=False) as client:
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


def _results(found: object, url: str, excerpt: str, limit: int) -> Sequence[tuple[str, str, str]]:
    """Return at most `limit` results from untrusted JSON, without malformed ones and URLs other
    than http and https. `url` and `excerpt` are the engine's keys for these fields."""
    rows = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    results = (
        (str(row.get("title") or ""), str(row.get(url) or ""), str(row.get(excerpt) or ""))
        for row in rows
    )
    return [each for each in results if each[1].startswith(("http://", "https://"))][:limit]


class SearchTools:
    """The tool that searches the web."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    @tool(
        reads=True,
        research=True,
        timeout=_TOOL_TIMEOUT,
        activity="searching the web for {query}",
        links="found",
    )
    async def search_web(
        self,
        query: Annotated[str, Field(min_length=2, max_length=200, description="a few words")],
        limit: Annotated[int, Field(ge=1, le=8, description="most results")] = 5,
    ) -> str:
        """Search the web for what the log does not know; read_page opens what was found."""
        try:
            found = await find_pages(self._engine, query, limit)
        except PageError as error:
            raise ToolError(f"nothing was searched: {error}") from error
        lines = (
            f"{title}\n  {url}\n  {excerpt[:_MAX_EXCERPT_LENGTH]}" for title, url, excerpt in found
        )
        return "\n".join(lines) or "nothing found"


def create_tools(config: Config) -> Sequence[object]:
    """Return the owners of the tools that `[pages]` enables. Raises ConfigError."""
    settings = config.section(PagesSettings)
    tools: list[object] = [PageTools(Fetcher())] if settings.read else []
    if settings.search:
        tools.append(SearchTools(settings.search))
    return tools
