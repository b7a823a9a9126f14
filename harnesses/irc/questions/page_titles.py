"""Titles of the pages that people link to on a channel, where `titles` is on."""

from __future__ import annotations

import re
from collections import OrderedDict
from urllib.parse import urlsplit

import structlog

from harnesses.core.commands.request import TokenBuckets
from harnesses.irc.requests import IrcRequest
from harnesses.irc.services import BotServices
from llm.web.errors import ExtraMissing, PageError
from llm.web.links import without_punctuation
from llm.web.reader import read_title
from storage.chat_log.event import Place

_URL = re.compile(r"(?<!\S)[<(\"']?(https?://[^\s<>\"\x00-\x1f]{3,500})", re.IGNORECASE)
_TITLES_PER_SECOND = 0.1  # titles on one channel
_REPEAT_AFTER = 3600.0  # seconds until the title of a page is told again on a channel
_MAX_ANNOUNCED = 500  # announced pages that are remembered
_MAX_TITLE = 200  # characters of a title

_log = structlog.get_logger()


class PageTitles:
    """The announcer of page titles: of the first link in a line, rate-limited per channel, and of
    the same page at most once an hour."""

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._clock = services.resources.clock.monotonic
        self._channels = TokenBuckets(_TITLES_PER_SECOND, self._clock, refusals_cost=False)
        self._told: OrderedDict[tuple[Place, str], float] = OrderedDict()

    def on_message(self, request: IrcRequest) -> None:
        """Announce, in the background, the page to which a public and logged line links, if any."""
        match = _URL.search(request.words)
        if match is None:
            return
        url, place, now = without_punctuation(match[1]), request.place, self._clock()
        known = self._told.get((place, url))
        if known is not None and now - known < _REPEAT_AFTER:
            return
        if self._channels.try_acquire(place):
            # Before the fetch, so that the same link does not start a second one meanwhile.
            self._told[(place, url)] = now
            self._told.move_to_end((place, url))
            if len(self._told) > _MAX_ANNOUNCED:
                self._told.popitem(last=False)
            self._services.spawn(self._tell(request, url))

    async def _tell(self, request: IrcRequest, url: str) -> None:
        try:
            title = await read_title(self._services.fetcher, url)
        except ExtraMissing as error:
            _log.warning("titles.not_read", reason=str(error))
            return
        except PageError as error:  # nobody waits for the title
            _log.debug("titles.not_read", reason=type(error).__name__)
            return
        if title:
            shown = title if len(title) <= _MAX_TITLE else f"{title[:_MAX_TITLE]}…"
            # Addressed to nobody, and in quotation marks, as a title is the page's own claim.
            target = self._services.sender.target(request.network, request.place)
            await self._services.sender.say(target, f"“{shown}” ({urlsplit(url).hostname})")
