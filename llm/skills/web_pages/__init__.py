"""Tools that open web pages and search the web."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from llm.tools.consent import to_open
from llm.tools.toolbox import ImageResult, ResultLength, ToolError, tool
from llm.web.errors import PageError
from llm.web.fetcher import Fetcher
from llm.web.reader import find_pages, read_page
from llm.web.settings import PagesSettings
from terrarium.config import Config

_NOTE_LENGTH = 100  # characters of a result that are kept free for the number of the part
_MAX_EXCERPT_LENGTH = 200  # characters of a page that a search has found
_TOOL_TIMEOUT = 45.0


@dataclass(frozen=True, slots=True)
class PageTools:
    """The tool that opens pages."""

    fetcher: Fetcher

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
            page = await read_page(self.fetcher, url)
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


@dataclass(frozen=True, slots=True)
class SearchTools:
    """The tool that searches the web with an `engine`."""

    engine: str

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
            found = await find_pages(self.engine, query, limit)
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
