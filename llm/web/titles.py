"""Titles of pages, found without parsing the HTML."""

from __future__ import annotations

import html
import re

from llm.web.fetcher import Fetcher, FetchLimits

LIMITS = FetchLimits(size=200_000, time=10.0, cuts=True)
"""Fetcher limits for titles, which stand at the beginning of a page, so that the rest is cut."""

_TYPES = frozenset(("text/html", "application/xhtml+xml"))
_TITLE = re.compile(r"<title(?:\s[^<>]{0,200})?>([^<]{0,1000})", re.IGNORECASE)


async def read_title(fetcher: Fetcher, url: str) -> str:
    """Return the title of an HTML page on one line, "" when it has none. Raises PageError."""
    page = await fetcher.fetch(url, _TYPES)
    match = _TITLE.search(page.text)
    return " ".join(html.unescape(match[1]).split()) if match else ""
