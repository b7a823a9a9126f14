"""A page of 2,000 real lines, from the click to the painted page.

The browser measures it: what the server takes, and from the first byte of the answer until the
frame in which the whole page has been painted. An empty page of the same site, in the same run,
shows what the browser takes by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

from playwright.async_api import Browser

from benchmarks.figure import Figure, percentile
from storage.event import Event
from tests.kit.browser import browser, visit
from tests.kit.web_site import two_days, web_site

LINES = 2000
VISITS = 15
GOAL = 300.0  # milliseconds
_MORNING = datetime(2026, 3, 1, 6, tzinfo=UTC)
_DAY = "/channel/irc/%23ubuntu?day="
# Two frames later everything that the load made necessary has been painted.
_TIMES = """() => new Promise(done => {
    const painted = () => {
        const [page] = performance.getEntriesByType("navigation");
        done([page.responseStart - page.requestStart, performance.now() - page.responseStart]);
    };
    requestAnimationFrame(() => requestAnimationFrame(painted));
})"""


async def figures() -> AsyncIterator[Figure]:
    """Milliseconds for the server and for the browser, median and 95th percentile."""
    with tempfile.TemporaryDirectory() as name:
        async with web_site(Path(name), events=list(_lines())) as site, browser() as chromium:
            bare = await _timed(chromium, f"{site.url}{_DAY}2000-01-01")
            whole = await _timed(chromium, f"{site.url}{_DAY}2026-03-01")
    yield Figure("empty page, in the browser, median", percentile(bare[1], 0.5), "ms")
    yield Figure(f"{LINES} lines, in the server, median", percentile(whole[0], 0.5), "ms")
    for share, said in ((0.5, "median"), (0.95, "p95")):
        goal = GOAL if share == 0.5 else None
        yield Figure(
            f"{LINES} lines, in the browser, {said}", percentile(whole[1], share), "ms", goal
        )


def _lines() -> Iterator[Event]:
    """The real lines again and again, all on one day."""
    for number, event in enumerate(islice(cycle(two_days()), LINES)):
        yield replace(event, time=_MORNING + timedelta(seconds=5 * number))


async def _timed(chromium: Browser, url: str) -> tuple[list[float], list[float]]:
    """What the server and the browser take, for visits in fresh profiles."""
    server, client = [], []
    for _ in range(VISITS):
        page = await visit(chromium, url)
        first, painted = await page.evaluate(_TIMES)
        server.append(first)
        client.append(painted)
        await page.context.close()
    return server, client
