"""Accessibility checks of web pages with axe-core.

assert await barriers(page) == []
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from playwright.async_api import Page

_SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_RUN = "() => axe.run(document, {resultTypes: ['violations']})"
GRAVE = ("serious", "critical")


async def barriers(page: Page) -> list[str]:
    """Return the serious and critical violations that axe finds on a page, with their elements."""
    await page.evaluate(_SOURCE)
    found: dict[str, Any] = await page.evaluate(_RUN)
    return [
        f"{violation['id']}: {violation['help']}: {node['target']} {node['failureSummary']}"
        for violation in found["violations"]
        if violation["impact"] in GRAVE
        for node in violation["nodes"]
    ]
