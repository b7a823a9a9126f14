"""Times as people write them: what is understood, in which zone it is meant, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.scheduling.cron_schedule import Timetable
from llm.scheduling.time_phrases import (
    EXAMPLE_RECURRENCES,
    EXAMPLE_TIMES,
    MAX_DISTANCE,
    NotUnderstood,
    ResolvedTime,
    parse_time,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)  # a Friday
VIENNA = ZoneInfo("Europe/Vienna")  # two hours ahead


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "due", "rest"),
    [
        ("in 20 minutes take the cake out", "2026-05-01T12:20", "take the cake out"),
        ("in 1h30m: tea", "2026-05-01T13:30", "tea"),
        ("In 2 days, 3 hours and 5 min go", "2026-05-03T15:05", "go"),
        ("in half an hour, go", "2026-05-01T12:30", "go"),
        ("in 2 hours 30 eggs", "2026-05-01T14:00", "30 eggs"),
        ("at 18:00 to call mum", "2026-05-01T16:00", "call mum"),
        ("at 6pm that it rains", "2026-05-01T16:00", "it rains"),
        ("at 9 5 people come", "2026-05-02T07:00", "5 people come"),
        ("at 18:00 tomorrow go", "2026-05-02T16:00", "go"),
        ("at noon eat", "2026-05-02T10:00", "eat"),
        ("at 12am sleep", "2026-05-01T22:00", "sleep"),
        ("today at 18:00 go", "2026-05-01T16:00", "go"),
        ("tomorrow 9:30 go", "2026-05-02T07:30", "go"),
        ("monday at 9 go", "2026-05-04T07:00", "go"),
        ("on Friday at 15:00 go", "2026-05-01T13:00", "go"),
        ("friday at 13:00 go", "2026-05-08T11:00", "go"),
        ("2026-12-24 18:00 gifts", "2026-12-24T17:00", "gifts"),
        ("10m tea", "2026-05-01T12:10", "tea"),
        ("1h tea", "2026-05-01T13:00", "tea"),
        ("in an hour and a half, go", "2026-05-01T13:30", "go"),
        ("in one and a half hours go", "2026-05-01T13:30", "go"),
        ("in ten minutes go", "2026-05-01T12:10", "go"),
        ("in a couple of minutes go", "2026-05-01T12:02", "go"),
        ("2 hours from now go", "2026-05-01T14:00", "go"),
        ("in 3 months renew", "2026-08-01T12:00", "renew"),
        ("tomorrow call mum", "2026-05-02T07:00", "call mum"),
        ("to call mum tomorrow at 9 please", "2026-05-02T07:00", "call mum"),
        ("tomorrow call mum at 18:00", "2026-05-02T16:00", "call mum"),
        ("at 18:00 call mum tomorrow", "2026-05-02T16:00", "call mum"),
        ("call mum at 9 about the party", "2026-05-02T07:00", "call mum about the party"),
        ("to prepare monday's talk at 5pm", "2026-05-01T15:00", "prepare monday's talk"),
        ("tea in 5 minutes", "2026-05-01T12:05", "tea"),
        ("tonight at 8 the film", "2026-05-01T18:00", "the film"),
        ("watch the film tonight", "2026-05-01T18:00", "watch the film"),
        ("tomorrow evening at 8 go", "2026-05-02T18:00", "go"),
        ("tonight at 1 go", "2026-05-01T23:00", "go"),
        ("next friday at 5pm go", "2026-05-08T15:00", "go"),
        ("on monday go", "2026-05-04T07:00", "go"),
        ("on the 24th at 18:00 go", "2026-05-24T16:00", "go"),
        ("on the 1st pay the rent", "2026-06-01T07:00", "pay the rent"),
        ("on 24 december go", "2026-12-24T08:00", "go"),
        ("half past six tea", "2026-05-01T16:30", "tea"),
        ("at six pm tea", "2026-05-01T16:00", "tea"),
        ("18:30 dinner", "2026-05-01T16:30", "dinner"),
        ("in 20 Minuten an den Tee", "2026-05-01T12:20", "den Tee"),
        ("in einer halben Stunde Tee", "2026-05-01T12:30", "Tee"),
        ("in anderthalb Stunden Tee", "2026-05-01T13:30", "Tee"),
        ("in 2 Stunden Tee", "2026-05-01T14:00", "Tee"),
        ("morgen um 9 daran, Mama anzurufen", "2026-05-02T07:00", "Mama anzurufen"),
        ("um 18 Uhr essen", "2026-05-01T16:00", "essen"),
        ("heute Abend um 8 Film", "2026-05-01T18:00", "Film"),
        ("übermorgen Müll", "2026-05-03T07:00", "Müll"),
        ("am 24.12. um 18 Uhr Gans", "2026-12-24T17:00", "Gans"),
        ("2026-12-24T18:00", "2026-12-24T17:00", ""),
        ("at 9 and half the team", "2026-05-02T07:00", "and half the team"),
        ("buy bread and butter tomorrow at 9", "2026-05-02T07:00", "buy bread and butter"),
        ("on 2026-12-24 at 18:00 gifts", "2026-12-24T17:00", "gifts"),
        ("at 5pm weekly report", "2026-05-01T15:00", "weekly report"),
        ("at 9 yearly review", "2026-05-02T07:00", "yearly review"),
        ("yearly review tomorrow at 9", "2026-05-02T07:00", "yearly review"),
        ("each of you call mum at 5pm", "2026-05-01T15:00", "each of you call mum"),
        ("alle Fenster schließen um 18 Uhr", "2026-05-01T16:00", "alle Fenster schließen"),
        ("jeder kommt morgen um 9", "2026-05-02T07:00", "jeder kommt"),
    ],
)
def test_a_time_is_understood_in_the_zone_in_which_it_is_meant(
    text: str, due: str, rest: str
) -> None:
    assert parse_time(text, NOW, VIENNA) == (ResolvedTime(at(due)), rest)


@pytest.mark.parametrize(
    ("text", "due", "rule"),
    [
        ("every day at 9 stand up", "2026-05-02T07:00", "0 9 * * *"),
        ("every weekday at 8:30 stand up", "2026-05-04T06:30", "30 8 * * 1-5"),
        ("every monday and thu at 9 stand up", "2026-05-04T07:00", "0 9 * * 1,4"),
        ("every sunday at noon stand up", "2026-05-03T10:00", "0 12 * * 7"),
        ("every monday stand up", "2026-05-04T07:00", "0 9 * * 1"),
        ("daily at 9 stand up", "2026-05-02T07:00", "0 9 * * *"),
        ("every evening at 8 stand up", "2026-05-01T18:00", "0 20 * * *"),
        ("every month on the 3rd stand up", "2026-05-03T07:00", "0 9 3 * *"),
        ("stand up every weekday at 9", "2026-05-04T07:00", "0 9 * * 1-5"),
        ("jeden Montag um 9 stand up", "2026-05-04T07:00", "0 9 * * 1"),
        ("every hour stand up", "2026-05-01T13:00", "0 * * * *"),
        ("every weekend stand up", "2026-05-02T07:00", "0 9 * * 6,7"),
        ("on weekends at 8 stand up", "2026-05-02T06:00", "0 8 * * 6,7"),
        ("on weekdays at 9 stand up", "2026-05-04T07:00", "0 9 * * 1-5"),
        ("at 7 every monday stand up", "2026-05-04T05:00", "0 7 * * 1"),
        ("stand up at 7 every monday", "2026-05-04T05:00", "0 7 * * 1"),
        ("stand up at 7 on mondays", "2026-05-04T05:00", "0 7 * * 1"),
        ("stand up at 7 daily, please", "2026-05-02T05:00", "0 7 * * *"),
        ("at 7 daily: stand up", "2026-05-02T05:00", "0 7 * * *"),
        ("at 7 daily to stand up", "2026-05-02T05:00", "0 7 * * *"),
        ("at 7 weekly on monday stand up", "2026-05-04T05:00", "0 7 * * 1"),
        ("every other hour stand up", "2026-05-01T14:00", "0 0-23/2 * * *"),
        ("alle drei Stunden stand up", "2026-05-01T15:00", "0 2-23/3 * * *"),
        ("every 3 months on the 5th stand up", "2026-05-05T07:00", "0 9 5 2-12/3 *"),
        ("every 3 hours at 9:30 stand up", "2026-05-01T13:30", "30 0-23/3 * * *"),
        ("every day at 9 and 17 to stand up", "2026-05-01T15:00", "0 9,17 * * *"),
        ("stand up every day at 9, 12 and 17", "2026-05-01T15:00", "0 9,12,17 * * *"),
        ("every day at 9am, 12pm, 5pm stand up", "2026-05-01T15:00", "0 9,12,17 * * *"),
        ("every day at 9:30 and at 17:30, stand up", "2026-05-01T15:30", "30 9,17 * * *"),
        ("every day at 9:00 and 9:20 stand up", "2026-05-02T07:00", "0,20 9 * * *"),
        ("every day at noon and midnight stand up", "2026-05-01T22:00", "0 0,12 * * *"),
        ("every evening at eight and ten to stand up", "2026-05-01T18:00", "0 20,22 * * *"),
        ("at 9 and 17 every weekday stand up", "2026-05-01T15:00", "0 9,17 * * 1-5"),
        ("jeden Tag um 9 und 17 Uhr stand up", "2026-05-01T15:00", "0 9,17 * * *"),
        ("on mondays and fridays at 8 stand up", "2026-05-04T06:00", "0 8 * * 1,5"),
        ("every day stand up at 17", "2026-05-01T15:00", "0 17 * * *"),
        ("every one hour stand up", "2026-05-01T13:00", "0 * * * *"),
    ],
)
def test_what_comes_again_is_a_cron_expression(text: str, due: str, rule: str) -> None:
    assert parse_time(text, NOW, VIENNA) == (ResolvedTime(at(due), rule), "stand up")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "stand up",
        "9 stand up",
        "5 minutes before the show",
        "today call mum",
        "may the force be with you",
        "at 25:00 go",
        "at 12:99 go",
        "at 13pm go",
        "at 1800 go",
        "today at 9 go",
        "yesterday at 9 go",
        "every 5 minutes go",
        "in 0 minutes go",
        "in 5 years go",
        "in 999999 weeks go",
        "2026-02-30 at 9 go",
        "march 45 go",
        "on the 31st of april go",
        "45.3. go",
        "2025-12-24 at 9 go",
        "0001-01-01 at 0:00 go",
        "9999-12-31 at 23:59 go",
        "2028-01-01 at 9 go",
    ],
)
def test_what_is_no_time_to_come_is_refused_in_words(text: str) -> None:
    with pytest.raises(NotUnderstood, match=r"\w{3}.*\."):
        parse_time(text, NOW, VIENNA)


@pytest.mark.parametrize(
    "text",
    [
        "every other day at 9 stand up",
        "stand up every other day at 9",
        "at 9 every other day stand up",
        "every second day at 9 stand up",
        "every 2nd day at 9 stand up",
        "every 2 days at 9 stand up",
        "every 5 hours stand up",
        "every two weeks on monday stand up",
        "every other monday at 9 stand up",
        "every first monday at 9 stand up",
        "every few days at 9 stand up",
        "every hour and a half stand up",
        "every month on monday stand up",
        "every year on 24 december stand up",
        "yearly on 24 december stand up",
        "yearly of my birthday at 9",
        "every january at 9 stand up",
        "jeden zweiten Tag um 9 stand up",
        "alle 2 Tage um 9 stand up",
    ],
)
def test_what_cannot_be_repeated_is_refused_with_what_can(text: str) -> None:
    with pytest.raises(NotUnderstood, match="every day at 9"):
        parse_time(text, NOW, VIENNA)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("every day at 9:00 and 17:30 stand up", "must have the same minutes"),
        ("every day at 8 and 10 pm stand up", "Say am or pm with each time"),
        ("every day at 9 and 25 stand up", "25:00 is no time of day"),
        ("every hour at 9 and 17 stand up", "What I can repeat is"),
        ("every day at 9 or 17 stand up", "more than one time"),
        ("at 9 and 17 stand up", "more than one time"),
        ("stand up tomorrow at 9 and 17", "more than one time"),
        ("on monday and friday at 8 stand up", "every monday and friday at 8"),
        ("stand up on monday and friday at 8", "every monday and friday at 8"),
        ("every monday at 9 and friday at 17 stand up", "more than one time"),
        ("every monday at 9 and every friday at 17 stand up", "more than one time"),
        ("in 10 minutes and in 20 minutes stand up", "more than one time"),
        ("every month on the 3rd and 5th stand up", "more than one time"),
        ("stand up on the 3rd and 5th at 9", "more than one time"),
        ("tomorrow at 1800 stand up", "I understand times like these"),
        ("every day at 9/17 stand up", "I understand times like these"),
    ],
)
def test_of_several_times_none_is_left_out_in_silence(text: str, why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        parse_time(text, NOW, VIENNA)


def test_every_recurrence_that_we_name_is_understood() -> None:
    for form in EXAMPLE_RECURRENCES.split(", "):
        found, rest = parse_time(f"{form} stand up", NOW, VIENNA)
        assert (bool(found.rule), rest) == (True, "stand up"), form


def test_every_form_that_we_name_is_understood() -> None:
    for form in EXAMPLE_TIMES.split(", "):
        assert parse_time(f"{form} go", NOW, UTC)[1] == "go"


def test_a_time_in_the_gap_of_spring_comes_right_after_it() -> None:
    night = at("2026-03-28T12:00")
    assert parse_time("at 2:30 go", night, VIENNA)[0].due == at("2026-03-29T01:30")


_WORDS = (
    "in at on every next 1 20 9999 : - , and half an day days monday weekday hour h m tomorrow"
    " 2026-05-09 9999-12-31 18:00 6 pm noon T to"
)


_PHRASES = st.lists(st.sampled_from(_WORDS.split()), max_size=8).map(" ".join)


@given(_PHRASES | st.text(max_size=40))
def test_whatever_is_written_a_time_is_to_come_or_refused(text: str) -> None:
    try:
        found, rest = parse_time(text, NOW, VIENNA)
    except NotUnderstood:
        return
    assert NOW < found.due <= NOW + MAX_DISTANCE
    assert found.due.utcoffset() == timedelta()
    assert set(rest.split()) <= set(text.split())
    if found.rule:
        assert Timetable.parse(found.rule, "Europe/Vienna").after(NOW) == found.due
