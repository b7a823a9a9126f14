"""`terrarium new NAME`: the scaffold of a tendril, as an installable package."""

from __future__ import annotations

import keyword
import re
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from harnesses.core.errors import TendrilError
from terrarium.config import GROUP as SETTINGS

_FILES = {
    "pyproject.toml.tmpl": "pyproject.toml",
    "README.md.tmpl": "README.md",
    "__init__.py.tmpl": "{name}/__init__.py",
    "tendril.py.tmpl": "{name}/tendril.py",
    "persona.md.tmpl": "{name}/persona.md",
    "tests/test_tendril.py.tmpl": "tests/test_tendril.py",
}


def new(
    name: Annotated[str, typer.Argument(help="its name: lower-case letters, digits, underscores")],
) -> None:
    """Begin a tendril of your own: a package with a passing test, in the folder ./NAME."""
    folder = scaffold(name, Path.cwd())
    typer.echo(f"{folder.name}/ is a tendril that works. Next:")
    typer.echo(f"  pip install -e ./{name}    (in the environment that Terrarium is in)")
    typer.echo(f"  terrarium run {name}       (while the agent server runs)")
    typer.echo(f"  and read {name}/README.md")


def scaffold(name: str, parent: Path) -> Path:
    """Write the package `name` into a new folder of `parent` and return it.

    Raises TendrilError when the name cannot be used or the folder exists.
    """
    _require_usable(name)
    folder = parent / name
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise TendrilError(f"{folder} exists already; choose another name or remove it") from error
    except OSError as error:
        raise TendrilError(f"{folder} cannot be made: {error}") from error
    values = {"name": name, "class_name": _class_name(name), "env": name.upper()}
    for template, target in _FILES.items():
        text = (files("harnesses.core") / "scaffold" / template).read_text(encoding="utf-8")
        path = folder / target.format(name=name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(Template(text).substitute(values), encoding="utf-8")
    return folder


def _require_usable(name: str) -> None:
    """Check that `name` can be a folder, a package, a table and part of a variable. Raises
    TendrilError."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        near = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:40]
        hint = f'; "{near}" would do' if near and not keyword.iskeyword(near) else ""
        raise TendrilError(
            f'"{name}" cannot be a name: it needs lower-case letters, digits and underscores, '
            f"a letter first{hint}"
        )
    if name in entry_points(group=SETTINGS).names:
        raise TendrilError(f'"{name}" is taken: Terrarium has a table [{name}] already')
    if find_spec(name) is not None:
        raise TendrilError(f'"{name}" is taken: Python finds a module of that name already')


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_")) + "Tendril"
