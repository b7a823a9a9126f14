"""Options of a command as one dataclass, for commands with many options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

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
