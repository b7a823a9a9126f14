"""Helpers for commands: common options, options from a dataclass, and tables of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file.", show_default="./terrarium.toml, if any"),
]
DataFolder = Annotated[Path, typer.Option("--data", help="Folder for all stored data.")]

Options = TypeVar("Options")


def take_options(command: Callable[[Options], None]) -> Callable[..., None]:
    """Return `command`, which takes one dataclass, as a function with a parameter for each field.

    Typer reads the signature of a function: each field becomes an option, or what its
    `Annotated[...]` says. With `kw_only`, fields with and without defaults can be in any order.
    """
    (parameter,) = signature(command).parameters
    kind: Any = get_type_hints(command)[parameter]
    hints = get_type_hints(kind, include_extras=True)

    def run(**values: Any) -> None:
        command(kind(**values))

    function: Any = run
    function.__name__, function.__doc__ = command.__name__, command.__doc__
    function.__module__ = command.__module__
    function.__annotations__ = {**hints, "return": None}
    function.__signature__ = Signature(
        [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(kind)
        ]
    )
    return run


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return `rows`, all of the same length, as lines of text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
