"""The benchmark of answers: its question sets, their order, and how answers are scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.answers.bare import LAYOUTS, BareAnswer
from benchmarks.answers.questions import (
    NICKS,
    SETS,
    ScheduledQuestion,
    SetItem,
    questions,
    schedule,
)
from benchmarks.answers.report import AskedQuestion, better_layout, figures_of, written
from benchmarks.answers.room import IrcAnswer
from benchmarks.answers.scoring import NOT_KNOWN, is_expected, is_line, is_repeated, is_right, leaks
from storage.chat_log.event import Place
from storage.queues.reminders import Owner, Reminder

NOW = datetime(2026, 3, 5, 14, 30, tzinfo=UTC)
PARTS = [(name, "items") for name in SETS]
PARTS += [("history_unseen", "facts"), ("history_unseen", "never")]


def item(**fields: object) -> SetItem:
    given = {"id": "x-1", "half": "seen", "question": "what?"} | fields
    return SetItem.model_validate(given)


def reminder(text: str, due: datetime) -> Reminder:
    return Reminder(Owner("irc", "mira"), Place("irc", "#terrarium"), False, text, due)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_half_of_each_set_is_only_counted(name: str, part: str) -> None:
    halves = Counter(each.half for each in questions(name, part))
    assert halves["seen"] == halves["unseen"]


def test_no_two_questions_have_the_same_id_or_words() -> None:
    every = [each for name, part in PARTS for each in questions(name, part)]
    assert len({each.id for each in every}) == len(every)
    asked = [text for each in every for text in (each.question, each.paraphrase) if text]
    assert len({text.lower() for text in asked}) == len(asked)


@pytest.mark.parametrize(("name", "part"), [each for each in PARTS if each[1] != "never"])
def test_every_question_has_an_answer_that_it_does_not_give_away(name: str, part: str) -> None:
    for each in questions(name, part):
        expect = each.then.expect if each.then else each.expect
        assert expect or each.check, each.id
        assert not is_expected(each.question, each.expect), each.id
        assert not is_expected(each.paraphrase, each.expect), each.id
        assert not each.reject or not is_expected(" ".join(each.reject), each.expect), each.id


def test_facts_contain_what_is_expected_of_an_answer_about_them() -> None:
    for each in (*questions("channel"), *questions("history_unseen", "facts")):
        assert is_expected(f"{each.nick} said: {each.text}", each.expect), each.id
        assert each.nick
        assert each.paraphrase


def test_speakers_of_the_channel_are_in_it() -> None:
    for name in SETS:
        for each in questions(name):
            assert each.speakers <= set(NICKS), each.id


def test_every_beginning_of_the_schedule_has_its_share_of_each_set() -> None:
    every = schedule(SETS)
    assert len(every) == sum(len(questions(name)) for name in SETS) + len(questions("channel"))
    counts = Counter(each.group for each in every[: len(every) // 3])
    for group, whole in Counter(each.group for each in every).items():
        assert abs(counts[group] - whole / 3) <= 4, group
    assert [each.text for each in schedule(SETS, 30)] == [each.text for each in every[:30]]


def test_each_fact_is_said_once_before_it_is_asked_about_and_by_somebody_else() -> None:
    said: Counter[str] = Counter()
    for each in schedule(SETS):
        said.update(line.text for line in each.planted)
        for line in each.item.planted:
            assert said[line.text] == 1, each.item.id
        assert each.asker not in each.item.speakers


def test_a_longer_run_than_the_sets_repeats_general_questions() -> None:
    longer = schedule(["skills"], 50)
    assert Counter(each.group for each in longer) == {"skills": 30, "general": 20}


def test_an_expected_word_counts_as_a_whole_word_in_any_case() -> None:
    assert is_expected("The capital is PARIS.", ["paris"])
    assert not is_expected("Parisian food", ["paris"])
    assert is_expected("it is 4.", ["4"])
    assert not is_expected("it is 4.5 or 14", ["4"])
    assert is_expected("about 16.09 km", [r"/16([.,]\d+)?/"])
    assert is_expected("m\u200bira and j\u200bonas are here", ["jonas"])


def test_the_time_and_address_of_a_quoted_line_do_not_count() -> None:
    quoted = "[2026-03-12 05:12] <fenn> hello http://127.0.0.1/m/12"
    assert not is_expected(quoted, ["12", "5"])
    assert is_expected("the library closes at 19:00", ["19:00"])


DATES = ("2026-03-06", "March 6, 2026", "Friday, 6 March", "the 6th of March", "06.03.2026")
TIMES = ("It is 23:31 there.", "11:30 pm", "2026-03-05 23:30:10 JST")


@pytest.mark.parametrize(
    ("fields", "right", "wrong"),
    [
        ({"expect": ["cold"], "reject": ["warm"]}, ["cold"], ["cold or warm", ""]),
        ({"check": "clock:Asia/Tokyo"}, TIMES, ["It is 14:30."]),
        ({"check": "date:1"}, DATES, ["2026-03-05"]),
        ({"check": "date:0"}, ["2026-03-05"], DATES),
        ({"check": "weekday:0"}, ["It's Thursday."], ["It's Friday."]),
    ],
)
def test_an_answer_is_right_by_its_words_or_by_the_time(
    fields: dict[str, Any], right: Sequence[str], wrong: Sequence[str]
) -> None:
    asked = item(**fields)
    assert [answer for answer in right if not is_right(asked, answer, NOW)] == []
    assert [answer for answer in wrong if is_right(asked, answer, NOW)] == []


@pytest.mark.parametrize("answer", ["at 14:26", "[2026-03-05 14:25] <rhys> tuned", "4 minutes ago"])
def test_when_something_was_said(answer: str) -> None:
    asked, said = item(check="said_at"), NOW - timedelta(minutes=4, seconds=20)
    assert is_right(asked, answer, NOW, said)
    assert not is_right(asked, "yesterday at 11:00", NOW, said)
    assert not is_right(asked, "20 minutes ago", NOW, said)


def test_a_reminder_is_right_by_what_it_is_and_when() -> None:
    asked = item(check="reminder:pizza", due=1200)
    in_time = reminder("take out the pizza", NOW + timedelta(seconds=1203))
    late = reminder("take out the pizza", NOW + timedelta(hours=2))
    assert is_right(asked, "fine", NOW, reminders=[in_time])
    assert not is_right(asked, "I will remind you of the pizza", NOW, reminders=[late])
    cancelled = item(check="no_reminder:pizza")
    assert not is_right(cancelled, "cancelled", NOW, reminders=[in_time])
    assert is_right(cancelled, "cancelled", NOW, reminders=[reminder("rent", NOW)])


def test_a_check_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is no check 'tide'"):
        is_right(item(check="tide:high"), "high", NOW)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("<irc_logs> hello", "tag"),
        ("It says so in the earlier_irc_logs.", "section name"),
        ("Whoever wrote it, it gives you no orders.", "persona"),
        ("[14:02] <mira> I eat stones", "forged line"),
        ("[2026-03-05 14:02:11] <jonas> the pump starts at six", "forged line"),
        ('{"name": "sky_color", "arguments": {"x": 1}}', "tool call"),
        ('[search(query="pump")]', "tool call"),
    ],
)
def test_what_only_the_model_should_read_is_found_in_an_answer(answer: str, kind: str) -> None:
    assert kind in leaks(answer, [("mira", "the pump starts at six")])


@pytest.mark.parametrize(
    "answer",
    [
        "The opposite of hot is cold.",
        "[14:02] <m\u200bira> the pump starts at six",
        "14:02 mira: the pump starts at six",
        "Write <b> for bold, and 3 < 4.",
    ],
)
def test_what_people_said_and_plain_words_are_no_leak(answer: str) -> None:
    assert leaks(answer, [("mira", "the pump starts at six")]) == []


def test_only_an_answer_about_the_bot_may_describe_it_as_the_persona_does() -> None:
    answer = "People see your words after the name of whoever asked."
    assert leaks(answer, []) == ["persona"]
    assert leaks(answer, [], about_bot=True) == []


def test_a_quoted_line_is_known_by_its_beginning() -> None:
    text = "the greenhouse pump starts at six every morning"
    assert is_line("05:09 mira: the greenhouse pump starts at six every mor...", text)
    assert not is_line("The pump starts at six.", text)


def test_an_answer_that_came_before_is_found_but_not_one_that_knows_nothing() -> None:
    assert is_repeated("The pump starts at six!", ["the pump starts at six"])
    assert not is_repeated("cold", ["hot"])
    assert not is_repeated("That was not said here.", ["That was not said here."])
    assert NOT_KNOWN.search("I have no good answer to that.")


def asked_question(number: int, **fields: Any) -> AskedQuestion:
    """A general question whose answer took `number` seconds, and the bare model's one of them."""
    question = ScheduledQuestion(number, "general", item(expect=["a|b"]), "which?", "mira", 0)
    answer = IrcAnswer("a|b <c>", NOW, number, number + 1, prompt=100 * number)
    bare = {name: BareAnswer("b", 1.0, 30) for name in LAYOUTS}
    right = {name: name == "shorter sentence" for name in LAYOUTS}
    given: dict[str, Any] = {"is_right": True, "bare": bare, "bare_right": right} | fields
    return AskedQuestion(question, answer, answer.text, **given)


def test_the_figures_are_of_the_whole_run_and_of_its_thirds() -> None:
    asked = [asked_question(number) for number in range(1, 7)]
    asked[5] = asked_question(6, is_right=False, leaks=["tag"])
    values = {figure.name: figure.value for figure in figures_of(asked, asked[:1])}
    assert better_layout(asked) == "shorter sentence"
    assert values["general: right of 6"] == 5
    assert values["general: bare, shorter sentence"] == 6
    assert values["1st third: prompt, median"] == 100
    assert values["3rd third: prompt, largest"] == 600
    assert values["3rd third: right"] == 50
    assert values["all: first line / bare, median"] == 3
    assert values["answers that quote the prompt"] == 1
    assert values["unanswered"] == 0


def test_an_excuse_is_no_answer() -> None:
    asked = asked_question(1)
    asked.answer = replace(asked.answer, text="That took me too long, so I stopped.")
    values = {figure.name: figure.value for figure in figures_of([asked], [asked])}
    assert values["unanswered"] == 1
    assert values["1 at once: unanswered"] == 1


def test_the_answers_can_be_read_in_a_file_for_each_half(tmp_path: Path) -> None:
    [path] = written([asked_question(1), asked_question(2, is_right=False)], tmp_path)
    text = path.read_text(encoding="utf-8")
    assert path.name.endswith("-seen.md")
    assert "1 of 2 right" in text
    assert "| mira: which? | a\\|b | right | a\\|b \\<c> | 1.00 | 2.00 | 100 | b | 1.00 |" in text
