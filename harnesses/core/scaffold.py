"""`terrarium new NAME`: generates the scaffold of a tendril, an installable package."""

from __future__ import annotations

import keyword
import re
import sys
from enum import StrEnum
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from harnesses.core.errors import TendrilError
from terrarium.command_line import DISTRIBUTION, below_here, installer
from terrarium.config import GROUP as SETTINGS
from terrarium.entry_points import entry_points

_COMMON = {
    "pyproject.toml.tmpl": "pyproject.toml",
    "__init__.py.tmpl": "{package}/__init__.py",
    "conftest.py.tmpl": "tests/conftest.py",
}
_OF_A_KIND = {
    "README.md.tmpl": "README.md",
    "tendril.py.tmpl": "{package}/tendril.py",
    "persona.md.tmpl": "{package}/persona.md",
    "test_tendril.py.tmpl": "tests/test_tendril.py",
}


class Kind(StrEnum):
    """The kinds of scaffold: a chat room, a watcher that reports to a channel, and a tendril whose
    model has tools."""

    CHAT = "chat"
    WATCHER = "watcher"
    TOOL = "tool"


_TEST_SETTINGS = {Kind.CHAT: '"port": 0', Kind.WATCHER: '"every": 0.05', Kind.TOOL: ""}
"""The settings for the generated test of each kind, as source code of dictionary items."""


def new(
    name: Annotated[str, typer.Argument(help="its name: lower-case letters, digits, underscores")],
    kind: Annotated[
        Kind,
        typer.Option(
            help="chat: a room where people talk; watcher: reports what it sees to a channel;"
            " tool: the model has tools of its own."
        ),
    ] = Kind.TOOL,
) -> None:
    """Create a tendril of your own: a package with a passing test, in the folder ./NAME."""
    folder = scaffold(name, Path.cwd(), kind)
    typer.echo(f"{folder.name}/ is a working tendril. Next:")
    package, python = f"-e './{name}[test]'", below_here(Path(sys.executable))
    if "pip install" in installer():
        typer.echo(f"  {installer()} {package}")
    else:  # an environment of uv or pipx is for the command alone
        python = ".venv/bin/python"
        typer.echo(f"  python3 -m venv .venv && .venv/bin/pip install {DISTRIBUTION} {package}")
    typer.echo(f"  {python} -m pytest {name}")
    command = Path(python).with_name("terrarium")
    typer.echo(f"  {below_here(command)} run {name}  (while the agent server runs)")
    typer.echo(f"  and read {name}/README.md")


def scaffold(name: str, parent: Path, kind: Kind = Kind.TOOL) -> Path:
    """Generate the package `terrarium_NAME` in a new folder NAME of `parent`; return the folder.
    Raises TendrilError if the name cannot be used, or if the folder exists or cannot be created."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        near = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:40]
        hint = f'; "{near}" would do' if near and not keyword.iskeyword(near) else ""
        raise TendrilError(
            f'"{name}" is not a valid name: use lower-case letters, digits and underscores, '
            f"a letter first{hint}"
        )
    if name in entry_points(SETTINGS).names:
        raise TendrilError(f'"{name}" is taken: Terrarium has a table [{name}] already')
    package = f"terrarium_{name}"
    if find_spec(package) is not None:
        raise TendrilError(f'"{name}" is taken: a package {package} is installed already')
    camel_case = "".join(word.capitalize() for word in name.split("_"))
    folder = parent / name
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise TendrilError(f"{folder} exists already; choose another name or remove it") from error
    except OSError as error:
        raise TendrilError(f"{folder} cannot be created: {error}") from error
    values = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "package": package,
        "class_name": f"{camel_case}Tendril",
        "env": name.upper(),
        "settings": f"{camel_case}Settings",
        "test_settings": _TEST_SETTINGS[kind],
    }
    templates = _COMMON | {f"{kind}/{source}": to for source, to in _OF_A_KIND.items()}
    for template, target in templates.items():
        text = (files("harnesses.core") / "scaffold" / template).read_text(encoding="utf-8")
        path = folder / target.format(package=package)
        path.parent.mkdir(exist_ok=True)
        path.write_text(Template(text).substitute(values), encoding="utf-8")
    return folder
