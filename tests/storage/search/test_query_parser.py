"""What people type into a search: read as they mean it, and never an error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.search.query_parser import Clause, Mode, ParsedQuery, Term, TermKind, parse

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PIECES = st.sampled_from(
    [
        *("frogs", "or", "AND", "not", "-", '"', '"to be', "a*", "*b", "*", "-x", "--force", ":"),
        *("from:ada", "-from:", "in:#pond", "hours:24", "hours:nan", "since:2026-02-30", "until:x"),
        *("NEAR(", "text:x", "{", ")", "^", "+", "日本", "é", "\0", "\ud800", "'", "%", "\\", "𝔣"),
    ]
)


def read(text: str, mode: Mode = Mode.AND) -> ParsedQuery:
    return parse(text, mode, now=NOW)


def word(text: str) -> Term:
    return Term(TermKind.WORD, text)


def test_words_must_all_occur_and_alternatives_are_clauses() -> None:
    both = Clause(include=(word("frogs"), word("awake")))
    assert read("frogs awake").clauses == (both,)
    assert read("frogs AND awake").clauses == (both,)
    assert read("frogs awake or toads").clauses == (both, Clause(include=(word("toads"),)))
    assert read("or frogs or").clauses == (Clause(include=(word("frogs"),)),)
    for text in ("-frogs", "not frogs", "NOT frogs"):  # must not occur
        assert read(text).clauses == (Clause(exclude=(word("frogs"),)),)


def test_words_that_are_alternatives_by_mode_may_be_joined_all_the_same() -> None:
    frogs, toads = word("frogs"), word("toads")
    newts = (word("newts"),)
    assert read("frogs toads", Mode.OR).clauses == (Clause((frogs,)), Clause((toads,)))
    assert read("frogs and toads", Mode.OR).clauses == (Clause((frogs, toads)),)
    without_newts = (Clause((frogs,), newts), Clause((toads,), newts))
    assert read("frogs -newts toads", Mode.OR).clauses == without_newts


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("frogs,", Term(TermKind.WORD, "frogs")),
        ('"frogs"', Term(TermKind.WORD, "frogs")),
        ('"frogs are awake"', Term(TermKind.PHRASE, "frogs are awake")),
        ('"frogs are', Term(TermKind.PHRASE, "frogs are")),
        ("don't", Term(TermKind.PHRASE, "don't")),
        ("apt-get", Term(TermKind.PHRASE, "apt-get")),
        ("frog*", Term(TermKind.PREFIX, "frog")),
        ("f*", Term(TermKind.WORD, "f")),
        ("*rog*", Term(TermKind.PART, "rog")),
        ("lib/frog.py", Term(TermKind.PART, "lib/frog.py")),
        ("https://pond.example/?a=b", Term(TermKind.PART, "https://pond.example/?a=b")),
        ("foo::bar()", Term(TermKind.PART, "foo::bar")),
        ("c++", Term(TermKind.PART, "c++")),
        ("--force", Term(TermKind.PART, "--force")),
        ("蛙が鳴く", Term(TermKind.PART, "蛙が鳴く")),
        ('"蛙 が"', Term(TermKind.PART, "蛙 が")),
        ('":)"', Term(TermKind.PART, ":)")),
    ],
)
def test_a_term_is_looked_for_as_it_is_written(text: str, term: Term) -> None:
    assert read(text).clauses == (Clause(include=(term,)),)


@pytest.mark.parametrize("text", ["", "   ", "...", "?!", "-", "*", '""', "()", "not", "or and"])
def test_nothing_is_asked_where_there_is_no_word(text: str) -> None:
    assert not read(text)


def test_filters_are_taken_out_of_the_words() -> None:
    parsed = read("from:a\u200bda user:Bob -nick:eve in:#pond channel:net/#lake -in:#sea frogs")
    assert parsed.nicks == {"ada", "Bob"}
    assert parsed.other_nicks == {"eve"}
    assert parsed.channels == {"#pond", "net/#lake"}
    assert parsed.other_channels == {"#sea"}
    assert parsed.terms == (word("frogs"),)


def test_times_are_days_months_years_or_moments_of_a_zone_and_the_narrowest_hold() -> None:
    assert read("since:2026-03-01").since == datetime(2026, 3, 1, tzinfo=UTC)
    assert read("until:2026-03-01").until == datetime(2026, 3, 2, tzinfo=UTC)
    assert read("until:2026-12").until == datetime(2027, 1, 1, tzinfo=UTC)
    assert read("since:2026 until:2026").until == datetime(2027, 1, 1, tzinfo=UTC)
    assert read("until:2026-03-01T08:00").until == datetime(2026, 3, 1, 8, tzinfo=UTC)
    assert read("since:2026-03-01T08:00+02:00").since == datetime(2026, 3, 1, 6, tzinfo=UTC)
    vienna = parse("since:2026-03-01", now=NOW, zone=ZoneInfo("Europe/Vienna"))
    assert vienna.since == datetime(2026, 2, 28, 23, tzinfo=UTC)
    parsed = read("hours:24 since:2020 until:2030 until:2026-04")
    assert parsed.since == NOW - timedelta(hours=24)
    assert parsed.until == datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["hours:never", "hours:-1", "since:2026-13", "since:soon"])
def test_a_filter_that_makes_no_sense_is_text(text: str) -> None:
    assert [term.text for term in read(text).terms] == [text]
    assert text in read(text).notes[0]


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("before:2017-01-01", "until"),
        ("after:2017", "since"),
        ("form:ikonia", "from"),
        ("by:ada", "from"),
        ('chanel:"#pond"', "channel"),
        ("https://pond.example", ""),
        ("std::swap", ""),
        ("note:well", ""),
        ("from:ada", ""),
    ],
)
def test_a_filter_that_is_none_is_named_with_the_nearest(text: str, nearest: str) -> None:
    notes = read(f"frogs {text}").notes
    key = text.partition(":")[0]
    assert notes == (
        (f'"{key}:" is not a filter of this search; "{nearest}:" is.',) * bool(nearest)
    )


def test_in_phrase_mode_everything_is_the_phrase_and_what_was_pasted_is_no_endless_search() -> None:
    parsed = read('frogs or "from:ada', Mode.PHRASE)
    assert parsed.terms == (Term(TermKind.PHRASE, "frogs or from:ada"),)
    assert len(read(" ".join(map(str, range(1_000)))).terms) < 50


@given(st.lists(PIECES, max_size=8).map(" ".join), st.sampled_from(Mode))
def test_any_mixture_of_operators_can_be_read(text: str, mode: Mode) -> None:
    parsed = read(text, mode)
    for clause in parsed.clauses:
        assert clause.include or clause.exclude
        assert all(term.text.strip() for term in (*clause.include, *clause.exclude))


@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=6))
def test_plain_words_are_found_again_in_their_order(typed: list[str]) -> None:
    plain = [each for each in typed if each not in ("and", "or", "not")]
    terms = read(" ".join(f'"{each}"' for each in typed)).terms
    assert [term.text for term in terms] == list(dict.fromkeys(typed))
    assert [term.text for term in read(" ".join(plain)).terms] == list(dict.fromkeys(plain))
