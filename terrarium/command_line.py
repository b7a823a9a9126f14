"""Helpers for commands: common options, tables of text, and how people call Terrarium."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from terrarium import __version__

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file.", show_default="./terrarium.toml, if any"),
]
DataFolder = Annotated[Path, typer.Option("--data", help="Folder for all stored data.")]

Options = TypeVar("Options")

DISTRIBUTION = "terrarium-irc"
"""The name in a package index; `terrarium` is another package there."""

_COMMAND = "TERRARIUM_COMMAND"


def show_version(wanted: bool) -> None:
    """Print the version and exit, if that is wanted."""
    if wanted:
        typer.echo(f"terrarium {__version__}")
        raise typer.Exit


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


def remember_command(called: str) -> None:
    """Note in the environment, for this process and its children, what to type in the current
    folder to call `terrarium` again; `called` is `sys.argv[0]`."""
    script, on_path = Path(called), shutil.which("terrarium")
    if script.name != "terrarium" or _COMMAND in os.environ:
        return
    typed = below_here(script.absolute())
    if _is_ephemeral():
        about = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        source = str(about.get("url", DISTRIBUTION)).removeprefix("file://")
        typed = f"uvx --from {shlex.quote(source)} terrarium"
    elif on_path and Path(on_path).resolve() == script.resolve():
        typed = "terrarium"
    os.environ[_COMMAND] = typed


def below_here(path: Path) -> str:
    """Return a path for a shell, relative to the current folder if it is below it."""
    is_below = path.is_relative_to(Path.cwd())
    return shlex.quote(str(path.relative_to(Path.cwd()) if is_below else path))


def _is_ephemeral() -> bool:
    """Return whether uvx has made this environment: it leads PATH without being activated."""
    first = Path(os.environ.get("PATH", "").partition(os.pathsep)[0])
    is_active = "VIRTUAL_ENV" in os.environ
    return bool(os.environ.get("UV")) and not is_active and first == Path(sys.prefix, "bin")


def as_typed(text: str) -> str:
    """Return a text for people in which commands can be typed as they are, in the folder where this
    process was started: those in backticks that begin with terrarium, and ours for pip."""
    command = os.environ.get(_COMMAND, "terrarium")
    return text.replace("`terrarium ", f"`{command} ").replace(
        f"pip install '{DISTRIBUTION}[", f"{installer()} '{DISTRIBUTION}["
    )


def installer() -> str:
    """Return the command that installs packages into the environment of this process."""
    python = Path(sys.executable)
    if (Path(sys.prefix) / "uv-receipt.toml").exists():
        return "uv tool install"
    if (Path(sys.prefix) / "pipx_metadata.json").exists():
        return "pipx install --force"
    if _is_ephemeral():
        return "uvx --from"
    if find_spec("pip"):
        return f"{below_here(python)} -m pip install"
    return f"uv pip install --python {below_here(python)}"


def foreign_llm() -> str | None:
    """Return a warning if the package `llm` is installed here too, None if not.

    It brings a Python package of the same name as one of ours: each overwrites or hides the other.
    """
    try:
        other = distribution("llm").version
    except PackageNotFoundError:
        return None
    return (
        f"the package llm {other} is installed in this environment too, and its files share"
        f" the folder llm with ours: remove it and install {DISTRIBUTION} again, or give Terrarium"
        f" an environment of its own (uv tool install {DISTRIBUTION})"
    )
