"""Page reader: detects the kind of a page, fetches it and extracts its text."""

from __future__ import annotations

import json
from dataclasses import dataclass

from llm.messages.message import Image, UnusableImage
from llm.web.detectors import Detector, Summary, detect
from llm.web.errors import ExtraMissing, PageError, PageUnreadable
from llm.web.extraction import Extracted, extract
from llm.web.fetcher import IMAGE_MEDIA_TYPES, TEXT_MEDIA_TYPES, Fetcher

ARTICLE = "article"
_HTML = frozenset(("text/html", "application/xhtml+xml"))
_FEEDS = frozenset(("application/rss+xml", "application/atom+xml"))
_XML = frozenset(("application/xml", "text/xml"))


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


class PageReader:
    """Reader of the pages that `fetcher` fetches."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def read(self, url: str) -> PageText:
        """Return the content of a page. Raises PageError."""
        found = detect(url)
        if found:
            try:
                return await self._read_source(url, *found)
            except ExtraMissing:
                raise
            except PageError:  # for example a rate limit of the API: read the page instead
                pass
        return await self._read_page(url)

    async def _read_source(self, url: str, detector: Detector, source: str) -> PageText:
        """Read a page from the `source` of its detector. Raises PageError."""
        page = await self._fetcher.fetch(source, is_api=detector.facts is not None)
        if detector.facts is None:
            return PageText(detector.kind, url, "", text=page.text)
        try:
            about = json.loads(page.body)
        except (ValueError, RecursionError) as error:  # JSON that is nested too deeply
            raise PageUnreadable("the site sent no JSON") from error
        if not isinstance(about, dict):
            raise PageUnreadable("the site sent no JSON object")
        summary: Summary = detector.facts(about)
        if not summary.title:
            raise PageUnreadable("the site says nothing of it")
        text = summary.text
        if detector.has_page:
            try:
                text = (await self._read_page(url)).text
            except PageError:
                text = ""
        return PageText(detector.kind, url, summary.title, summary.facts, text)

    async def _read_page(self, url: str) -> PageText:
        """Read a page as an article, feed, plain text or image. Raises PageError."""
        page = await self._fetcher.fetch(url, TEXT_MEDIA_TYPES | IMAGE_MEDIA_TYPES)
        if page.type in IMAGE_MEDIA_TYPES:
            try:
                return PageText("image", page.url, "", image=Image.from_bytes(page.body))
            except UnusableImage as error:
                raise PageUnreadable(str(error)) from error
        # Many servers send RSS and Atom as generic XML.
        head = page.body[:1_000]
        is_feed = page.type in _XML and (b"<rss" in head or b"<feed" in head)
        if is_feed or page.type in _FEEDS:
            parts = await extract(page.body, page.url, is_feed=True)
            return PageText("feed", page.url, parts.title, _facts(parts), parts.text)
        if page.type not in _HTML:
            return PageText("text", page.url, "", text=page.text)
        parts = await extract(page.body, page.url)
        if not (parts.text or parts.title or parts.description):
            raise PageUnreadable("there is no text in it; perhaps it needs a browser")
        return PageText(ARTICLE, page.url, parts.title, _facts(parts), parts.text)


def _facts(parts: Extracted) -> tuple[str, ...]:
    about = ", ".join(filter(None, (parts.author, parts.site, parts.date)))
    return tuple(filter(None, (about, parts.description)))
