"""Page reader: detects the kind of a page, fetches it and extracts its text; search of the web.

The kind of a page is recognised by its URL, so that the relevant facts come first. Repositories,
issues and packages are fetched from the documented API of their site, pastes from the URL of their
plain text. Every other page is an article.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import structlog

from llm.messages.message import Image, UnusableImage
from llm.web.errors import ExtraMissing, PageError, PageUnreadable
from llm.web.extraction import extract
from llm.web.fetcher import IMAGE_MEDIA_TYPES, TEXT_MEDIA_TYPES, Fetcher, FetchLimits
from llm.web.links import web_addresses
from llm.web.settings import PUBLIC_ENGINES, PagesSettings
from storage.passages.words import content_stems
from terrarium.config import Config

TITLE_LIMITS = FetchLimits(size=200_000, time=10.0, cuts=True)
"""Fetcher limits for titles, which stand at the beginning of a page, so that the rest is cut."""

_HTML = frozenset(("text/html", "application/xhtml+xml"))
_FEEDS = frozenset(("application/rss+xml", "application/atom+xml"))
_XML = frozenset(("application/xml", "text/xml"))
_TITLE = re.compile(r"<title(?:\s[^<>]{0,200})?>([^<]{0,1000})", re.IGNORECASE)
_SEARCH_TIMEOUT = 15.0  # seconds
_NO_ANSWER = "the search engine gave no answer; try again later"
_MAX_PAGES = 3  # that are read for a topic
_MAX_FOUND = 3  # pages of one search

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a site's JSON that tell about a page, or those `inside` one of them.

    `title`, `text` and the value of each fact name the keys of a field, of which the first that has
    something counts. A fact is shown with its label; one without a label comes first.
    """

    title: str
    facts: Mapping[str, str]
    text: str = ""
    inside: str = ""

    def read(self, source: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str]:
        """Return title, facts and text of untrusted JSON, each empty if it has none."""
        found = source.get(self.inside) if self.inside else source
        fields = found if isinstance(found, Mapping) else {}

        def text(keys: str) -> str:
            return next(filter(None, (_text(fields.get(key)) for key in keys.split())), "")

        said = ((label, text(keys)) for label, keys in self.facts.items())
        facts = (f"{label}: {value}" if label else value for label, value in said if value)
        return text(self.title), tuple(facts), text(self.text)


def _text(value: object) -> str:
    """Return a field of untrusted JSON as text, "" if it is empty or of an unknown form."""
    if isinstance(value, Mapping):
        named = value.get("name") or value.get("login") or value.get("username")
        return _text(named or list(value))
    if isinstance(value, list):
        return ", ".join(filter(None, map(_text, value[:10])))
    return str(value) if isinstance(value, str | int | float) else ""


@dataclass(frozen=True, slots=True)
class Detector:
    """A kind of page, whose URL without scheme and "www." matches `pattern`.

    `source` is the template of the URL to fetch, filled in with the groups of the match. `fields`
    tell what is where in its JSON; None: it is plain text. A repository has its page's text, too.
    """

    kind: str
    pattern: str
    source: str
    fields: Fields | None = None


_SCHEME = re.compile(r"^https?://(?:www\.)?", re.IGNORECASE)
_NAME = r"[\w.-]+"
_PARTS = {  # of the addresses in sites.toml
    "{repository}": rf"(?P<owner>{_NAME})/(?P<name>{_NAME}?)(?:\.git)?",
    "{name}": rf"(?P<name>{_NAME})",
    "{number}": r"(?P<number>\d{1,9})",
    "{code}": r"(?P<code>[\w-]{4,64})",
}
_STORED = tomllib.loads(Path(__file__).with_name("sites.toml").read_text(encoding="utf-8"))
_FIELDS = {name: Fields(**table) for name, table in _STORED["fields"].items()}
DETECTORS = tuple(
    Detector(
        site["kind"],
        re.sub(r"\{[a-z]+\}", lambda part: _PARTS[part[0]], site["page"]),
        site["source"],
        _FIELDS.get(site.get("fields", "")),
    )
    for site in _STORED["sites"]
)
"""All detectors, in the order in which they are tried."""


def detect(url: str) -> tuple[Detector, str] | None:
    """Return the detector of a page and the URL to fetch for it, None for an article."""
    address = _SCHEME.sub("", url.partition("#")[0]).rstrip("/")
    for detector in DETECTORS:
        if match := re.fullmatch(detector.pattern, address, re.IGNORECASE):
            parts = {key: part for key, part in match.groupdict().items() if part}
            # A dot segment would turn the URL of a documented API, which is fetched without regard
            # to robots.txt, into any other URL of its host.
            if not {".", ".."} & {piece for part in parts.values() for piece in part.split("/")}:
                # Slashes are quoted too: a scoped npm package, "@types/node", is one segment.
                quoted = {key: quote(part, safe="") for key, part in parts.items()}
                return detector, detector.source.format(**quoted)
    return None


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


@dataclass(frozen=True, slots=True)
class PageReader:
    """Searches and reads pages, as far as `[pages]` allows it."""

    settings: PagesSettings
    fetcher: Fetcher

    @classmethod
    def from_config(cls, config: Config) -> PageReader:
        """Return the reader that a configuration allows. Raises ConfigError."""
        return cls(config.section(PagesSettings), Fetcher())

    async def read(
        self, searches: Sequence[str], lines: Iterable[str], length: int
    ) -> list[tuple[str, str]]:
        """Return address and text of some pages that the web finds, or whose addresses stand in
        `lines`; of each the paragraphs, at most `length` characters, nearest to the searches."""
        found: list[str] = []
        if self.settings.search:
            for search in searches:
                try:
                    pages = await find_pages(self.settings.search, search, _MAX_FOUND)
                except PageError as error:
                    _log.info("research.not_searched", reason=type(error).__name__)
                    continue
                found += [address for _, address, _ in pages]
        linked = chain.from_iterable(map(web_addresses, lines))
        addresses = list(dict.fromkeys([*found, *linked])) if self.settings.read else []
        wanted = content_stems(" ".join(searches))
        read = []
        for address in islice(addresses, _MAX_PAGES):
            try:
                page = await read_page(self.fetcher, address)
            except PageError as error:
                _log.info("research.page_not_read", reason=type(error).__name__)
                continue
            if text := excerpt(page.text, wanted, length):
                read.append((address, f"{page.title}\n{text}".strip()))
        return read


def excerpt(text: str, wanted: frozenset[str], length: int) -> str:
    """Return the paragraphs that share most words with the wanted ones, in their order; of one that
    is longer than all of it, the beginning."""
    paragraphs = [each.strip()[:length] for each in text.split("\n") if each.strip()]
    order = sorted(
        range(len(paragraphs)), key=lambda n: (-len(wanted & content_stems(paragraphs[n])), n)
    )
    chosen = set()
    for number in order:
        if len(paragraphs[number]) <= length:
            length -= len(paragraphs[number]) + 1
            chosen.add(number)
    return "\n".join(paragraphs[number] for number in sorted(chosen))
