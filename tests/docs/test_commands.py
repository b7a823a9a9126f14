"""docs/commands.md has exactly the existing commands and options."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import Any, cast

import typer

from harnesses.cli import GROUP, app
from harnesses.irc.event_handler import Commands
from tests.docs.reference import ROOT

TEXT = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
COMMON = {"--help", "--config", "--data"}


def options(command: Any) -> set[str]:
    return {
        option
        for parameter in command.params
        if parameter.param_type_name == "option"
        for option in parameter.opts
    }


def real() -> dict[str, set[str]]:
    """Return the options of every existing command, by the command's words."""
    found: dict[str, set[str]] = {}

    def walk(path: str, command: Any) -> None:
        if subcommands := getattr(command, "commands", None):
            for name, inner in subcommands.items():
                walk(f"{path} {name}".strip(), inner)
        else:
            found[path] = options(command) - COMMON

    walk("", typer.main.get_command(app))
    for entry in entry_points(group=GROUP):
        command = entry.load()
        if not isinstance(command, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command()(command)
            command = alone
        walk(entry.name, typer.main.get_command(command))
    return found


def documented() -> dict[str, set[str]]:
    """Return the documented options of every documented command."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"^### `terrarium ", TEXT, flags=re.M)[1:]:
        body = re.split(r"^#", section, flags=re.M)[0]
        title = body.split("`")[0]
        argument = re.compile(r"\[?[A-Z]+(?:\.\.\.)?\]?")
        words = [word for word in title.split() if not argument.fullmatch(word)]
        found[" ".join(words)] = set(re.findall(r"--[a-z][a-z0-9-]*", body)) - COMMON
    return found


def test_every_command_and_option_is_documented() -> None:
    assert documented() == real()


def test_the_options_before_a_command_are_documented() -> None:
    head = TEXT.split("\n## ")[0]
    before = options(typer.main.get_command(app))
    assert set(re.findall(r"--[a-z-]+", head)) == before | COMMON


def test_every_irc_command_is_documented() -> None:
    known = set(Commands(*[cast(Any, None)] * 3).known)
    assert set(re.findall(r"^\| `\.(\w+)", TEXT, flags=re.M)) == known
