"""Questions that skills settle without a model, word by word, and talk that they leave alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.client.profile import CAPABLE, TINY
from llm.reading.days import easter
from llm.reading.reading import Reading
from llm.skills.calculator.sums import ExpressionError, evaluate
from llm.skills.hint import HintContext
from llm.skills.registry import SkillRegistry
from llm.skills.world_clock import zone_name
from tests.kit.skills import whole_hint
from tests.kit.tables import rows

NOW = datetime(2026, 11, 22, 5, 5, tzinfo=UTC)  # a Sunday
VIENNA = ZoneInfo("Europe/Vienna")


@cache
def shelf() -> SkillRegistry:
    """Our own skills."""
    return SkillRegistry.read(Path("nowhere"), SkillRegistry({}, {}))


async def said(question: str) -> str | None:
    return await whole_hint(shelf(), question, HintContext(NOW, VIENNA))


@pytest.mark.parametrize("row", rows("llm/skills/answers.txt"), ids=" | ".join)
async def test_a_question_that_has_one_exact_answer_gets_it_as_it_was_read(
    row: Sequence[str],
) -> None:
    kind, question, expected = row
    reading = None if kind == "-" else Reading(question, {kind: 1.0})
    answer = await whole_hint(shelf(), question, HintContext(NOW, VIENNA, reading)) or "-"
    assert answer == expected or re.fullmatch(expected, answer)


def of_time(question: str) -> HintContext:
    return HintContext(NOW, VIENNA, Reading(question, {"time": 1.0}))


@pytest.mark.parametrize("row", rows("llm/skills/times.txt"), ids=" | ".join)
async def test_a_question_about_times_and_dates_is_told_the_facts(row: Sequence[str]) -> None:
    question, *facts = row
    answer = await whole_hint(shelf(), question, of_time(question)) or ""
    assert [fact for fact in facts if fact not in answer] == [], answer
    reading = Reading(question, {"general": 1.0})
    assert await whole_hint(shelf(), question, HintContext(NOW, VIENNA, reading)) is None


@pytest.mark.parametrize("row", rows("llm/skills/no_times.txt"), ids=" | ".join)
async def test_what_asks_for_more_than_the_clock_knows_is_left_alone(row: Sequence[str]) -> None:
    assert await whole_hint(shelf(), row[0], of_time(row[0])) is None


@pytest.mark.parametrize("row", [*rows("llm/skills/talk.txt"), ["#42"]], ids=" | ".join)
async def test_ordinary_talk_is_left_alone(row: Sequence[str]) -> None:
    matches = await shelf().matching(row[0], None)
    assert [match.hint for match in matches if match.hint] == []


@pytest.mark.parametrize(
    ("question", "hint"),
    [("what is 12 * 4 and who was Einstein?", "12 × 4 = 48"), ("is 99 x 3 a lot?", "99 × 3 = 297")],
)
async def test_a_sum_in_a_longer_question_helps_and_does_not_settle_it(
    question: str, hint: str
) -> None:
    [match] = await shelf().matching(question, None)
    assert match.hint
    assert (match.hint.text, match.hint.is_whole) == (hint, False)


@pytest.mark.parametrize(("is_asked", "kind", "question"), rows("llm/skills/free_words.txt"))
async def test_a_capable_model_is_asked_what_an_unquoted_text_may_hold(
    is_asked: str, kind: str, question: str
) -> None:
    context = HintContext(NOW, VIENNA, Reading(question, {kind: 1.0}))
    matches = await shelf().matching(question, None, context)
    (free,) = [match.hint.free for match in matches if match.hint and match.hint.is_whole]
    assert TINY.may_shortcut(free)
    assert CAPABLE.may_shortcut(free) is (is_asked == "no")


@pytest.mark.parametrize(
    "question", ["(" * 290, "1+" * 140, "9" * 300, "a b " * 70, "in " * 90, "1." * 150]
)
async def test_a_strange_question_is_soon_done_with(question: str) -> None:
    assert await said(question) is None


@given(st.text(alphabet="0123456789 +-*/%^().,!x ofinkmtdays?", max_size=60))
async def test_no_question_makes_a_hint_fail(question: str) -> None:
    for skill in shelf().skills.values():
        hint = await skill.hint(question, HintContext(NOW, VIENNA)) if skill.hint else None
        assert hint is None or hint.text.strip()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9^999", "too large"),
        ("10.5^400", "too large"),
        ("0.01^-300", "too large"),
        ("0.01^300", "too close to zero"),
        ("9^-999", "too close to zero"),
        ("0.5^600 * 0.5^600", "too close to zero"),
        ("round(1, 999999999)", "too long"),
        ("-" * 150 + "1", "too many brackets"),
    ],
)
def test_a_result_beyond_all_bounds_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        evaluate(text)


def test_easter_is_when_it_was() -> None:
    known = {1818: "03-22", 1943: "04-25", 2000: "04-23", 2024: "03-31", 2038: "04-25"}
    assert {year: f"{easter(year):%m-%d}" for year in known} == known


def test_places_are_known_by_their_usual_names() -> None:
    assert zone_name("Wien") == "Europe/Vienna"
    assert zone_name("europe/vienna") == "Europe/Vienna"
    assert zone_name("UTC") == "UTC"
    assert zone_name("Atlantis") is None
