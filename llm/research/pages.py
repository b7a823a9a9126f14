"""Pages of the web for a research: what a search engine finds, and what people have linked to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice

import structlog

from llm.skills.web_pages import find_pages
from llm.web.errors import PageError
from llm.web.fetcher import Fetcher
from llm.web.links import web_addresses
from llm.web.reader import read_page
from llm.web.settings import PagesSettings
from storage.passages.words import content_stems
from terrarium.config import Config

_MAX_PAGES = 3  # that are read for a topic
_MAX_FOUND = 3  # pages of one search

_log = structlog.get_logger()


class PageReader:
    """Searches and reads pages, as far as `[pages]` allows it."""

    def __init__(self, settings: PagesSettings, fetcher: Fetcher) -> None:
        self._settings, self._fetcher = settings, fetcher

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
        if self._settings.search:
            for search in searches:
                try:
                    pages = await find_pages(self._settings.search, search, _MAX_FOUND)
                except PageError as error:
                    _log.info("research.not_searched", reason=type(error).__name__)
                    continue
                found += [address for _, address, _ in pages]
        linked = chain.from_iterable(map(web_addresses, lines))
        addresses = list(dict.fromkeys([*found, *linked])) if self._settings.read else []
        wanted = content_stems(" ".join(searches))
        read = []
        for address in islice(addresses, _MAX_PAGES):
            try:
                page = await read_page(self._fetcher, address)
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
