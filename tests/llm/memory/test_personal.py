"""What people have remembered, read from their words; what the bot says of itself."""

from __future__ import annotations

from functools import partial

import pytest

from harnesses.core.commands.request import ParsedCommand, parse_command
from harnesses.core.commands.table import TOPICS, introduce
from llm.memory.room import Statement, statement_in
from tests.kit.tables import rows


@pytest.mark.parametrize(("key", "value", "text"), rows("llm/memory/statements.txt"))
def test_a_fact_has_a_name_and_a_note_has_none(key: str, value: str, text: str) -> None:
    assert statement_in(text) == Statement(key.strip("-"), value)


@pytest.mark.parametrize("text", ["", "tea", "that "])
def test_nothing_said_is_nothing_to_remember(text: str) -> None:
    assert statement_in(text) is None


def test_what_the_bot_says_of_itself_is_true_for_its_model() -> None:
    small = partial(introduce, name="Terra", model="small-135m", chooses_tools=False)
    large = partial(
        introduce,
        name="Terra",
        model="large-8b",
        chooses_tools=True,
        web_address="https://log.example.org",
        prefix="!",
    )
    for topic in TOPICS:
        for introduction in (small, large):
            said = introduction(topic)
            assert len(said.split("\n")) <= 3
            assert len(said) <= 700
    assert "cannot use tools by itself" in small("model")
    assert "chooses by itself" in large("model")
    assert "large-8b" in large("identity")
    assert "!search pump" in large("abilities")
    assert "https://log.example.org" in large("abilities")
    assert "http" not in small("abilities")


@pytest.mark.parametrize(
    ("text", "command", "words"),
    [
        ("forget me", "forget", "me"),
        ("Terra: forget me 96a261", "forget", "me 96a261"),
        ("nolog", "nolog", ""),
        ("Terra: nolog off", "nolog", "off"),
        ("forget me not", "terrarium", "forget me not"),
        ("please forget me", "terrarium", "please forget me"),
        ("forget my tea", "terrarium", "forget my tea"),
    ],
)
def test_own_data_is_removed_by_the_exact_words_only(text: str, command: str, words: str) -> None:
    assert parse_command(text, prefix=".", nicks=("Terra",), private=True) == ParsedCommand(
        command, words
    )
