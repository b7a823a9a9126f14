"""Commands that take their options as one dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from terrarium.command_line import take_options
from terrarium.config import split_commas


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
