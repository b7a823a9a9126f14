"""Checks of an OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def unresolved_references(described: dict[str, Any]) -> list[str]:
    """The `$ref`s of a description that lead nowhere in it."""
    return [each for each in _references(described) if not _resolves(described, each)]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _resolves(described: Any, reference: str) -> bool:
    start, *path = reference.split("/")
    for key in path:
        described = described.get(key) if isinstance(described, dict) else None
    return start == "#" and described is not None
