"""A web server that sends what a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kit.page_server import PageServer, page_server


@pytest.fixture
async def site() -> AsyncIterator[PageServer]:
    """A server without any page."""
    async with page_server() as found:
        yield found
