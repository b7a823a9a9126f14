"""Debian's Chromium, driven by Playwright: `browser`, or one for all tests of a module.

pytestmark = pytest.mark.asyncio(loop_scope="module")

async def test_a_page(chromium: Browser) -> None:
    page = await visit(chromium, f"{site.url}/")
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.kit.patience import PATIENCE

CHROMIUM = Path("/usr/bin/chromium")
_INSTALLED = CHROMIUM.exists()
DESKTOP = (1280, 860)
PHONE = (390, 844)
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=PATIENCE * 1000)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Launch a browser with a temporary profile; skip the test if Chromium is not installed."""
    if not _INSTALLED:
        pytest.skip(f"{CHROMIUM} is not installed (Debian package chromium)")
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=_ARGUMENTS, handle_sigint=False, handle_sigterm=False
        )
        try:
            yield chromium
        finally:
            await chromium.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_browser() -> AsyncIterator[Browser]:
    """The browser of all tests of a module."""
    async with browser() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def chromium(running_browser: Browser) -> AsyncIterator[Browser]:
    """The browser of the module; what a test has opened in it is closed after the test."""
    yield running_browser
    for context in running_browser.contexts:
        await context.close()


async def visit(
    chromium: Browser,
    url: str,
    *,
    size: tuple[int, int] = DESKTOP,
    scheme: Literal["light", "dark"] = "light",
) -> Page:
    """Open `url` in a new browser context, without cookies or cache, and return the page."""
    context = await chromium.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    page = await context.new_page()
    await page.goto(url)
    return page
