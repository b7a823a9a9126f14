"""terrarium.example.toml and docs/configuration.md have every setting with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from terrarium.config import Config, load
from tests.docs.reference import (
    CONFIGURATION,
    EXAMPLE,
    ROOT,
    all_variables,
    documented,
    example,
    tables,
)
from tests.docs.source import PACKAGES

AGAIN = "write it anew: .venv/bin/python -m tests.docs.reference"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in all_variables():
        monkeypatch.delenv(name, raising=False)


def test_the_example_file_has_every_key_with_its_default() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == example(), AGAIN


def test_the_documentation_has_every_key_with_its_default() -> None:
    text = CONFIGURATION.read_text(encoding="utf-8")
    assert text == documented(text), AGAIN


def test_the_example_file_as_it_is_changes_nothing(tmp_path: Path) -> None:
    config = load(EXAMPLE, tmp_path)
    for kind in tables().values():
        assert config.section(kind) == Config({}, None, tmp_path).section(kind)


def test_the_example_file_with_every_key_switched_on_is_accepted(tmp_path: Path) -> None:
    text = re.sub(r"^#(?=[\w\[])", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.M)
    file = tmp_path / "terrarium.toml"
    file.write_text(text, encoding="utf-8")
    tables = load(file, tmp_path).tables
    assert tables["cron"]["jobs"]["digest"]["log"] == "#terrarium"
    assert tables["irc"]["networks"]["libera"]["tls"] is True


@pytest.mark.parametrize("table", tables())
def test_every_key_says_what_it_is_for(table: str) -> None:
    silent = [key for key, field in tables()[table].model_fields.items() if not field.description]
    assert silent == []


def test_every_variable_that_the_code_reads_is_documented() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    ]
    read = set(re.findall(r"\bTERRARIUM_[A-Z_]+\b", "\n".join(sources)))
    text = CONFIGURATION.read_text(encoding="utf-8")
    assert read
    assert {name for name in read if f"`{name}`" not in text} == set()
