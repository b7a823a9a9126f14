"""The log API keeps what its own description promises, whatever it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from schemathesis import Case
from schemathesis.checks import not_a_server_error

from tests.kit.openapi import CHECKS, ask_everything
from tests.kit.web_site import excerpt, web_site

ENDLESS = "/api/stream"


def send(case: Case[Any], right: bool) -> None:
    case.call_and_validate(checks=[*CHECKS, not_a_server_error])


async def test_the_api_answers_as_it_says_and_never_with_a_500(tmp_path: Path) -> None:
    async with web_site(
        tmp_path, events=excerpt(), tables={"storage": {"semantic": False}}
    ) as site:
        asked = await asyncio.to_thread(ask_everything, site.url, send, ENDLESS)
        described = await site.get("/openapi.json")
        assert {*asked, ENDLESS} == set(described["paths"])
