"""The log API keeps what its own description promises, whatever it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.kit.web_site import excerpt, web_site

ENDLESS = "/api/stream"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 15  # of each endpoint, right and wrong, always the same ones


def ask_everything(url: str) -> list[str]:
    """Ask every endpoint that ends; returns those that were asked."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema.config.update(base_url=url)
    asked = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path == ENDLESS:
            continue
        right_and_wrong = GenerationMode if len(operation.query) else [GenerationMode.POSITIVE]
        for mode in right_and_wrong:
            ask(operation.as_strategy(generation_mode=mode))
        asked.append(operation.path)
    return asked


def ask(cases: SearchStrategy[Case[Any]]) -> None:
    """Send requests, and hold each answer against the description."""

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def send(case: Case[Any]) -> None:
        case.call_and_validate(checks=CHECKS)

    send()


async def test_the_api_answers_as_it_says_and_never_with_a_500(tmp_path: Path) -> None:
    async with web_site(
        tmp_path, events=excerpt(), tables={"storage": {"semantic": False}}
    ) as site:
        asked = await asyncio.to_thread(ask_everything, site.url)
        described = await site.get("/openapi.json")
        assert {*asked, ENDLESS} == set(described["paths"])
