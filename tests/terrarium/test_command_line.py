"""Commands: their options as one dataclass, and what is said of how to call them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from terrarium.command_line import take_options
from terrarium.config import split_commas

BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeding:
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which frog.")]
    flies: Annotated[int, typer.Option(min=1, help="How many.")] = 3
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False


app = typer.Typer()


@app.command()
@take_options
def feed(feeding: Feeding) -> None:
    """Feed a frog."""
    if not feeding.quiet:
        typer.echo(f"{feeding.name}: {feeding.flies}")


def test_each_field_is_an_option_or_an_argument() -> None:
    run = CliRunner()
    assert run.invoke(app, ["ada"]).output == "ada: 3\n"
    assert run.invoke(app, ["--flies", "5", "ada"]).output == "ada: 5\n"
    assert run.invoke(app, ["ada", "--quiet"]).output == ""
    shown = run.invoke(app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb"}).output
    assert "Feed a frog." in shown
    assert "How many." in shown


@pytest.mark.parametrize("words", [["ada", "--flies", "0"], [], ["ada", "--legs", "4"]])
def test_what_an_option_may_not_be_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.parametrize(
    ("value", "split"), [("a, b,,c ", ["a", "b", "c"]), ("", []), (("a", "b"), ("a", "b")), (3, 3)]
)
def test_a_string_is_split_at_its_commas_and_all_else_left(value: object, split: object) -> None:
    assert split_commas(value) == split


def told(folder: Path, script: str, **environment: str) -> str:
    """The advice of a check that fails, by a command typed in `folder`."""
    done = subprocess.run(
        [script, "doctor", "irc"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr + done.stdout


@pytest.mark.process
def test_a_command_in_a_message_can_be_typed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(BIN.parent)
    assert "`.venv/bin/terrarium up`" in told(tmp_path, ".venv/bin/terrarium")
    path = f"{BIN}:{os.environ['PATH']}"
    assert "`terrarium up`" in told(tmp_path, str(BIN / "terrarium"), PATH=path)
    elsewhere = told(tmp_path, str(BIN / "terrarium"), PATH="/usr/bin:/bin")
    assert f"`{BIN}/terrarium up`" in elsewhere


@pytest.mark.process
def test_a_foreign_package_llm_is_named_with_the_way_out(tmp_path: Path) -> None:
    about = tmp_path / "llm-0.31.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: llm\nVersion: 0.31\n")
    said = told(tmp_path, str(BIN / "terrarium"), PYTHONPATH=str(tmp_path))
    assert "the package llm 0.31 is installed in this environment too" in said
    assert "uv tool install terrarium-irc" in said
