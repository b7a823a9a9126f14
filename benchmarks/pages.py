"""Loading time of a web page with 800 real log lines, from navigation to paint.

Measured in the browser: the server's time to the first byte, and from the first byte to the frame
in which the whole page is painted. An empty page of the same site shows the browser's own overhead.
The CPU time of the page's main thread does not depend on other load on the machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

from playwright.async_api import Browser

from benchmarks.figure import Figure, percentile
from storage.chat_log.event import Event
from tests.kit.browser import browser, visit
from tests.kit.web_site import two_days, web_site

LINES = 800
VISITS = 15
GOAL = 300.0  # milliseconds
_MORNING = datetime(2026, 3, 1, 6, tzinfo=UTC)
_DAY = "/channel/irc/%23ubuntu?day="
# Callbacks of `requestAnimationFrame` run before a frame is painted: in the second one, the first
# frame with the loaded page has been painted.
_TIMES = """() => new Promise(done => {
    const painted = () => {
        const [page] = performance.getEntriesByType("navigation");
        done([page.responseStart - page.requestStart, performance.now() - page.responseStart]);
    };
    requestAnimationFrame(() => requestAnimationFrame(painted));
})"""


async def figures() -> AsyncIterator[Figure]:
    """Yield the milliseconds of the server, of the browser, and of its main thread."""
    with tempfile.TemporaryDirectory() as name:
        async with web_site(Path(name), events=list(_lines())) as site, browser() as chromium:
            bare = await _timed(chromium, f"{site.url}{_DAY}2000-01-01")
            whole = await _timed(chromium, f"{site.url}{_DAY}2026-03-01")
    yield Figure("empty page, in the browser, median", _median(bare, "painted"), "ms")
    yield Figure(f"{LINES} lines, in the server, median", _median(whole, "server"), "ms")
    yield Figure(f"{LINES} lines, in the browser, median", _median(whole, "painted"), "ms", GOAL)
    p95 = percentile([each.painted for each in whole], 0.95)
    yield Figure(f"{LINES} lines, in the browser, p95", p95, "ms")
    yield Figure(f"{LINES} lines, work of the main thread", _median(whole, "work"), "ms")


@dataclass(frozen=True, slots=True)
class Visit:
    """The milliseconds of one page load: to the first byte, from there to paint, and CPU time."""

    server: float
    painted: float
    work: float


def _median(visits: list[Visit], name: str) -> float:
    return percentile([getattr(each, name) for each in visits], 0.5)


def _lines() -> Iterator[Event]:
    """Yield LINES events on one day, repeating the real lines."""
    for number, event in enumerate(islice(cycle(two_days()), LINES)):
        yield replace(event, time=_MORNING + timedelta(seconds=5 * number))


async def _timed(chromium: Browser, url: str) -> list[Visit]:
    """Load a page VISITS times, each in a fresh browser context, so that nothing is cached."""
    visits = []
    for _ in range(VISITS):
        page = await visit(chromium, "about:blank")
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        await page.goto(url)
        server, painted = await page.evaluate(_TIMES)
        metrics = (await devtools.send("Performance.getMetrics"))["metrics"]
        work = next(each["value"] for each in metrics if each["name"] == "TaskDuration")
        visits.append(Visit(server, painted, 1000 * work))
        await page.context.close()
    return visits
