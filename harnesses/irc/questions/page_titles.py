"""Titles of the pages that people link to on a channel, where `titles` is on."""

from __future__ import annotations

import re
from collections import OrderedDict
from urllib.parse import urlsplit

import structlog

from harnesses.core.rate_limit import TokenBuckets
from harnesses.irc.policy.requests import CommandRequest
from harnesses.irc.services import BotServices
from llm.web.errors import ExtraMissing, PageError
from llm.web.titles import read_title
from storage.chat_log.event import Place

_URL = re.compile(r"(?<!\S)[<(\"']?(https?://[^\s<>\"\x00-\x1f]{3,500})", re.IGNORECASE)
_END = ".,;:!?)]}'\""
_PER_SECOND = 0.1  # titles on one channel
_AGAIN = 3600.0  # seconds until the title of a page is told again on a channel
_KEPT = 500  # pages that were told
_LONGEST = 200  # characters of a title

_log = structlog.get_logger()


class PageTitles:
    """Tells the title of the first page that a line links to, as often as the rate limit allows
    and of one page once an hour."""

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._clock = services.tendril.clock.monotonic
        self._channels = TokenBuckets(_PER_SECOND, self._clock, refusals_cost=False)
        self._told: OrderedDict[tuple[Place, str], float] = OrderedDict()

    def on_message(self, request: CommandRequest) -> None:
        """Tell the title of a page that somebody linked to in public, in a line that is logged."""
        match = _URL.search(request.words)
        if match is None:
            return
        url, place, now = match[1].rstrip(_END), request.place, self._clock()
        known = self._told.get((place, url))
        if known is not None and now - known < _AGAIN:
            return
        if self._channels.try_acquire(place):
            self._told[(place, url)] = now
            self._told.move_to_end((place, url))
            if len(self._told) > _KEPT:
                self._told.popitem(last=False)
            self._services.spawn(self._tell(request, url))

    async def _tell(self, request: CommandRequest, url: str) -> None:
        try:
            title = await read_title(self._services.fetcher, url)
        except ExtraMissing as error:
            _log.warning("titles.not_read", reason=str(error))
            return
        except PageError as error:  # a person who pastes a link waits for nothing
            _log.debug("titles.not_read", reason=type(error).__name__)
            return
        if title:
            shown = title if len(title) <= _LONGEST else f"{title[:_LONGEST]}…"
            # To all: so it is no reply, and as everything of a page it is somebody else's words.
            target = self._services.sender.target(request.network, request.place)
            await self._services.sender.say(target, f"“{shown}” ({urlsplit(url).hostname})")
