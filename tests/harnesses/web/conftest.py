"""Sites of the web tendril, each with an empty log, the real lines of a morning, or a model; and
the browser of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.browser import chromium, running_browser
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.scripted_server import script
from tests.kit.web_site import WebSite, excerpt, web_site

__all__ = ["chromium", "running_browser", "script"]


@pytest.fixture
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[WebSite]:
    """A site as the `SITE` of the module describes it to `web_site`; by default one that is open to
    this machine, over an empty log."""
    async with web_site(tmp_path, **getattr(request.module, "SITE", {})) as found:
        yield found


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[WebSite]:
    """A site with the lines of `excerpt`."""
    async with web_site(tmp_path, events=excerpt()) as found:
        yield found


@pytest.fixture
async def chat(tmp_path: Path, script: ScriptedOpenAI) -> AsyncIterator[WebSite]:
    """A site over an empty log whose chat asks the model `script`."""
    async with web_site(tmp_path, agent_url=script.url) as found:
        yield found
