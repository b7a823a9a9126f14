"""Page reader: detects the kind of a page, fetches it and extracts its text."""

from __future__ import annotations

import html
import json
import re
from contextlib import suppress
from dataclasses import dataclass

from llm.messages.message import Image, UnusableImage
from llm.web.detectors import Detector, detect
from llm.web.errors import ExtraMissing, PageError, PageUnreadable
from llm.web.extraction import extract
from llm.web.fetcher import IMAGE_MEDIA_TYPES, TEXT_MEDIA_TYPES, Fetcher, FetchLimits

TITLE_LIMITS = FetchLimits(size=200_000, time=10.0, cuts=True)
"""Fetcher limits for titles, which stand at the beginning of a page, so that the rest is cut."""

_HTML = frozenset(("text/html", "application/xhtml+xml"))
_FEEDS = frozenset(("application/rss+xml", "application/atom+xml"))
_XML = frozenset(("application/xml", "text/xml"))
_TITLE = re.compile(r"<title(?:\s[^<>]{0,200})?>([^<]{0,1000})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PageText:
    """A page that was read: its kind (article, feed, repository, issue, package, paste, text or
    image), title, short facts and text, or the image. All of it is untrusted."""

    kind: str
    url: str
    title: str
    facts: tuple[str, ...] = ()
    text: str = ""
    image: Image | None = None

    def render(self) -> str:
        """Return the page as text, the most important lines first."""
        head = f"{self.kind}: {self.title}" if self.title else self.kind
        return "\n".join(filter(None, (head, self.url, *self.facts, "", self.text)))


async def read_page(fetcher: Fetcher, url: str) -> PageText:
    """Return the content of a page. Raises PageError."""
    if found := detect(url):
        try:
            return await _read_source(fetcher, url, *found)
        except ExtraMissing:
            raise
        except PageError:  # for example a rate limit of the API: read the page instead
            pass
    return await _read_itself(fetcher, url)


async def _read_source(fetcher: Fetcher, url: str, detector: Detector, source: str) -> PageText:
    """Read a page from the `source` of its detector. Raises PageError."""
    fields = detector.fields
    page = await fetcher.fetch(source, is_api=fields is not None)
    if fields is None:
        return PageText(detector.kind, url, "", text=page.text)
    try:
        about = json.loads(page.body)
    except (ValueError, RecursionError) as error:  # JSON that is nested too deeply
        raise PageUnreadable("the site sent no JSON") from error
    title, facts, text = fields.read(about if isinstance(about, dict) else {})
    if not title:
        raise PageUnreadable("the site says nothing of it")
    if detector.kind == "repository":
        with suppress(PageError):
            text = (await _read_itself(fetcher, url)).text
    return PageText(detector.kind, url, title, facts, text)


async def _read_itself(fetcher: Fetcher, url: str) -> PageText:
    """Read a page as an article, feed, plain text or image. Raises PageError."""
    page = await fetcher.fetch(url, TEXT_MEDIA_TYPES | IMAGE_MEDIA_TYPES)
    if page.type in IMAGE_MEDIA_TYPES:
        try:
            return PageText("image", page.url, "", image=Image.from_bytes(page.body))
        except UnusableImage as error:
            raise PageUnreadable(str(error)) from error
    # Many servers send RSS and Atom as generic XML.
    head = page.body[:1_000]
    is_feed = page.type in _FEEDS or (page.type in _XML and (b"<rss" in head or b"<feed" in head))
    if not is_feed and page.type not in _HTML:
        return PageText("text", page.url, "", text=page.text)
    parts = await extract(page.body, page.url, "feed" if is_feed else "page")
    if not (is_feed or parts.text or parts.title or parts.description):
        raise PageUnreadable("there is no text in it; perhaps it needs a browser")
    about = ", ".join(filter(None, (parts.author, parts.site, parts.date)))
    facts = tuple(filter(None, (about, parts.description)))
    return PageText("feed" if is_feed else "article", page.url, parts.title, facts, parts.text)


async def read_title(fetcher: Fetcher, url: str) -> str:
    """Return the title of an HTML page on one line, "" if it has none. Raises PageError."""
    page = await fetcher.fetch(url, _HTML)
    match = _TITLE.search(page.text)
    return " ".join(html.unescape(match[1]).split()) if match else ""
