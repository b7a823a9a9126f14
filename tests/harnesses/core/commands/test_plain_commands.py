"""Commands in plain words, read by the real embedding model and the shipped weights."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_server.engines.embeddings import EmbeddingEngine
from harnesses.core.commands.table import PlainCommand, plain_command
from llm.client.profile import CAPABLE, TINY
from llm.reading.reading import Reading, Surroundings, read_slots, shorten

pytest_plugins = ("tests.kit.embedder",)

FACTS = ("favourite tea", "timezone")
HERE = Surroundings(datetime(2026, 11, 23, 12, tzinfo=UTC), UTC, "ada", ("ada", "bob", "dave"))
PHRASES = Path(__file__).with_name("plain_commands.tsv")
LEAST_RIGHT = 0.9  # of the phrases; the accuracy on unseen ones is counted by a benchmark


async def read(folder: Path, texts: list[str]) -> list[Reading]:
    """Read texts as the agent server and the tendrils do together."""
    engine = EmbeddingEngine(folder)
    async with engine.lifespan():
        asked = {"input": [shorten(text) for text in texts], "input_type": "query"}
        made = await engine.embeddings({**asked, "encoding_format": "float"})
    vectors = [each["embedding"] for each in made["data"]]
    return [Reading.from_vector(*each, HERE) for each in zip(texts, vectors, strict=True)]


async def test_commands_in_plain_words_are_found_with_their_arguments(embedder: Path) -> None:
    rows = [line.split("\t") for line in PHRASES.read_text(encoding="utf-8").splitlines()]
    readings = await read(embedder, [text for _, _, text in rows])
    wrong = []
    for (name, words, text), reading in zip(rows, readings, strict=True):
        found = plain_command(reading, TINY, FACTS) or PlainCommand("")
        if (found.name, found.words) != (name, words):
            wrong.append(f"{text!r} ({reading.kind}): {found.name} {found.words!r}")
    assert len(wrong) <= (1 - LEAST_RIGHT) * len(rows), wrong


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("remind", "remind me in 2 hours to check the oven and also tell me what bob said"),
        ("remind", "erinnere mich morgen um 9 an die Sensoren und sag mir, was dieter meinte"),
        ("cancel_reminder", "cancel the reminder for the oven, and tell me what is for dinner"),
        ("cancel_reminder", "cancel reminder None"),
        ("remember", "remember that my sister is here on friday at ten and needs a lift"),
        ("schedule", "every monday at 9 sum up the week and ask who is on duty"),
    ],
)
def test_what_may_hold_another_request_is_left_to_a_capable_model(kind: str, text: str) -> None:
    reading = Reading(text, {kind: 0.99}, slots=read_slots(kind, text, HERE))
    assert plain_command(reading, TINY) is not None
    assert plain_command(reading, CAPABLE) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("reminders", "what are my reminders and which one is most urgent?"),
        ("recall", "when is my birthday and what day of the week is it"),
        ("counts", "who talks most here and about what?"),
        ("help", "what can you do about the leaking pump"),
        ("about_bot", "who made you and why?"),
        ("reminders", "list my reminders as json"),
        ("cancel_reminder", "cancel my last reminder"),
        ("stop", "stop saying sorry"),
        ("stop", "forget it"),
        ("remind", "remind me about it tomorrow at 9"),
        ("remind", "remind me to do it tomorrow"),
        ("remind", "remind me at 9"),
        ("remind", "remind us tomorrow at 9 of the vase"),
        ("remind", "erinnere mich morgen um 9 daran"),
        ("remind", "erinnere mich in 10 Minuten an das"),
        ("remind", "rappelle-moi ça demain à 9h"),
        ("schedule", "schedule it every day at 9"),
    ],
)
def test_a_capable_model_is_asked_what_may_be_more_than_a_command(kind: str, text: str) -> None:
    reading = Reading(text, {kind: 0.99}, slots=read_slots(kind, text, HERE))
    assert plain_command(reading, TINY, FACTS) is not None or kind == "counts"
    assert plain_command(reading, CAPABLE, FACTS) is None


def test_only_who_surely_asks_for_their_facts_is_told_all_of_them() -> None:
    for text, certainty, facts, is_told in (
        ("what do you know about me", 0.95, (), True),
        ("was weißt du über mich?", 0.95, (), True),
        ("what size harness do i get", 0.95, (), False),
        ("what size harness do i get", 0.95, FACTS, True),
        ("which day am i on", 0.75, FACTS, False),
    ):
        found = plain_command(Reading(text, {"recall": certainty}), TINY, facts)
        assert (found is not None) is is_told, text


def test_what_a_command_takes_to_its_last_word_needs_no_model() -> None:
    for kind, text in (
        ("remind", "remind me in 20 minutes to check it"),
        ("cancel_reminder", "cancel reminder 3"),
        ("cancel_reminder", "please cancel all my reminders"),
        ("remember", "remember that I am allergic to nuts"),
        ("stop", "stop it!"),
    ):
        reading = Reading(text, {kind: 0.99}, slots=read_slots(kind, text, HERE))
        assert plain_command(reading, CAPABLE), text


def test_a_reminder_to_cancel_may_have_a_name_a_number_or_be_the_only_one() -> None:
    for text, words in (
        ("never mind the reminder", "cancel"),
        ("cancel my reminder please", "cancel"),
        ("cancel all my reminders", "cancel all"),
        ("cancel reminder 3", "cancel 3"),
    ):
        reading = Reading(
            text, {"cancel_reminder": 0.99}, slots=read_slots("cancel_reminder", text, HERE)
        )
        found = plain_command(reading, TINY)
        assert found
        assert (found.name, found.words) == ("reminders", words), text
    unsure = plain_command(Reading("about my reminder", {"cancel_reminder": 0.75}), TINY)
    assert unsure == PlainCommand("reminders", "", None)


def test_what_names_no_key_is_a_note_and_a_time_zone_stays_a_fact() -> None:
    for text, words in (
        ("note: bring matches", "that bring matches"),
        ("remember that my tea is oolong", "my tea is oolong"),
        ("remember timezone Europe/Vienna", "timezone Europe/Vienna"),
        ("please remember TZ Europe/Vienna", "TZ Europe/Vienna"),
    ):
        reading = Reading(text, {"remember": 0.99}, slots=read_slots("remember", text, HERE))
        found = plain_command(reading, TINY)
        assert found
        assert (found.name, found.words) == ("remember", words), text


def test_a_kind_whose_slot_is_missing_is_no_command() -> None:
    for kind, text in (
        ("remind", "set a timer"),
        ("remind", "nudge dave tomorrow at 9 about the review"),  # it reminds the asker alone
        ("schedule", "sum it up again and again"),
        ("remember", "remember"),
    ):
        reading = Reading(text, {kind: 0.99}, slots=read_slots(kind, text, HERE))
        assert plain_command(reading, TINY) is None, text


def test_what_destroys_needs_its_exact_words() -> None:
    for kind in ("forget_me", "nolog", "clear"):
        reading = Reading("get rid of everything about Lena", {kind: 0.99})
        found = plain_command(reading, TINY)
        assert found
        assert (found.name, found.words) in (("forget", ""), ("help", kind))
        assert plain_command(reading, CAPABLE) is None
    assert plain_command(Reading("Clear!"), TINY) == PlainCommand("clear")


def test_only_known_facts_are_recalled_by_name() -> None:
    reading = Reading("what's my favorite tea again?", {"recall": 0.9})
    found = plain_command(reading, TINY, FACTS)
    assert found
    assert (found.name, found.words) == ("recall", "favourite tea")
    assert plain_command(reading, TINY, ()) is None  # the log may tell
