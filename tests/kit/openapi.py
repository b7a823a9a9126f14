"""Checks of an OpenAPI description, and of an API by its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 5  # of each endpoint, right ones and wrong ones, always the same


def ask_everything(url: str, send: Callable[[Case[Any], bool], None], but: str = "") -> set[str]:
    """Call `send` with requests to every endpoint of the API at `url` `but` one, and whether they
    are to be right; return the addresses."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema.config.update(base_url=url)
    asked = set()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path == but:
            continue
        for mode in GenerationMode:
            right = mode is GenerationMode.POSITIVE
            if right or len(operation.query) or operation.body:
                _ask(operation.as_strategy(generation_mode=mode), send, right)
        asked.add(operation.path)
    return asked


def _ask(
    cases: SearchStrategy[Case[Any]], send: Callable[[Case[Any], bool], None], right: bool
) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def each(case: Case[Any]) -> None:
        send(case, right)

    # The generator gives up on some wrong bodies of its own making.
    with suppress(*([] if right else [InvalidSchema])):
        each()


def unresolved_references(described: dict[str, Any]) -> list[str]:
    """The `$ref`s of a description that lead nowhere in it."""

    def resolves(reference: str) -> bool:
        start, *path = reference.split("/")
        found: Any = described
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return start == "#" and found is not None

    return [each for each in _references(described) if not resolves(each)]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)
