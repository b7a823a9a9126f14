"""Screenshots of the web pages: `python -m tests.docs.screenshots` regenerates docs/img.

They show the real lines of tests/data, spread over the last weeks.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser

from storage.chat_log.event import Event
from tests.docs.reference import ROOT
from tests.kit.browser import PHONE, browser, visit
from tests.kit.web_site import WebSite, event, two_days, web_site

FOLDER = ROOT / "docs" / "img"
CHANNEL = "irc/%23ubuntu"
DESKTOP = (1100, 700)
_ANSWERS = 40  # questions that Terrarium answers


async def take(folder: Path) -> None:
    """Write all screenshots into `folder`."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    events = sorted([*_spread(two_days(), now), *_questions(now)], key=lambda each: each.time)
    with tempfile.TemporaryDirectory() as data:
        async with web_site(Path(data), events=events) as site, browser() as chromium:
            for name, path, size, scheme in _pictures(now):
                await _picture(chromium, site, path, folder / f"{name}.png", size, scheme)


def _pictures(
    now: datetime,
) -> Iterator[tuple[str, str, tuple[int, int], Literal["light", "dark"]]]:
    day = (now - timedelta(days=3)).date()
    yield "channels", "/", DESKTOP, "light"
    yield "day", f"/channel/{CHANNEL}?day={day}", DESKTOP, "light"
    yield "search", "/search?q=kernel", DESKTOP, "light"
    yield "statistics", f"/stats/{CHANNEL}", DESKTOP, "dark"
    yield "calendar", f"/calendar/{CHANNEL}", DESKTOP, "light"
    yield "phone", f"/channel/{CHANNEL}?day={day}", PHONE, "dark"


async def _picture(
    chromium: Browser,
    site: WebSite,
    path: str,
    file: Path,
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
) -> None:
    page = await visit(chromium, site.url + path, size=size, scheme=scheme)
    await page.screenshot(path=file)
    await page.context.close()


def _spread(events: list[Event], now: datetime) -> Iterator[Event]:
    """Yield the lines in conversations of 23, spread over 77 days and 11 hours of the day."""
    for number, each in enumerate(events):
        talk, line = divmod(number, 23)
        back = timedelta(days=(talk * talk * 5) % 77, hours=5 - (talk * 7) % 11)
        yield replace(each, time=now - back + timedelta(seconds=41 * line))


def _questions(now: datetime) -> Iterator[Event]:
    """Yield questions to Terrarium on two channels, each with its answer."""
    for number in range(_ANSWERS):
        time = now - timedelta(days=number * 1.9, hours=number % 5)
        place = "#ubuntu" if number % 3 else "#terrarium"
        asked = event("Terra: what was said of k3b?", nick="bob", channel=place, time=time)
        answer = event("djtansey could burn as root only; Nafallo had no luck with 2.6.8.")
        yield asked
        yield replace(
            answer,
            nick="Terra",
            own=True,
            channel=place,
            time=time + timedelta(seconds=2),
            reply_to=1,
        )


def main() -> None:
    """Write the screenshots to docs/img, or to the folder on the command line."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(folder))


if __name__ == "__main__":
    main()
