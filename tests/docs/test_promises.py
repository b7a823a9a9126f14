"""Each sentence of the README and the docs that promises privacy, safety or durability has a test.

`promises.toml` has a table for each document, with the tests of each such sentence by a part of it.
`test_every_promise_has_tests` finds sentences that sound like promises and are not listed; its
`no_promises` are those that only sound so.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache

import pytest

from tests.docs.reference import ROOT

DOCUMENTS = (
    "README.md",
    "SECURITY.md",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").glob("*.md")
        if path.stem not in ("architecture", "glossary")  # for developers, without promises
    ),
)

WORDS = re.compile(
    r"\b(?:never|nobody|neither|nothing|not kept|not logged|not shown|is lost|loses?|without your"
    r"|survives?|is finished|only you|stays? private|are removed|is removed|not written outside"
    r"|have no access|cannot read|after a restart|(?:is|are) left out|you alone|is resumed"
    r"|checked a(?:gainst|gain)|keeps logging|(?:is|are) deleted|may read|may not ask"
    r"|(?:is|are) refused|over a restart|removes (?:all|what))\b",
    re.IGNORECASE,
)
"""Words that suggest a promise."""

_LISTED = tomllib.loads((ROOT / "tests/docs/promises.toml").read_text(encoding="utf-8"))
NO_PROMISES: Sequence[str] = _LISTED.pop("no_promises")
PROMISES: Mapping[str, Mapping[str, Sequence[str]]] = _LISTED
"""The tests by a part of a sentence, by document."""

_BLOCKS = re.compile(r"```.*?```|<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=(?:[-|#*]|\d+\.) ?)")
_SENTENCE = re.compile(r"(?<=[.!?:;|])\s+(?=[A-Z`*\[(|])")
_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


@cache
def sentences(document: str) -> tuple[str, ...]:
    """Return the sentences of a document, each on one line."""
    text = _BLOCKS.sub("", (ROOT / document).read_text(encoding="utf-8"))
    found: list[str] = []
    for paragraph in _PARAGRAPH.split(text):
        if not paragraph.startswith("    "):
            found += _SENTENCE.split(" ".join(paragraph.split()))
    return tuple(found)


def named_in(folder: str) -> set[str]:
    """Return the names of all test functions below a folder."""
    paths = (ROOT / folder).rglob("test_*.py")
    return {name for path in paths for name in _TEST.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_promise_has_tests(document: str) -> None:
    known = (*PROMISES.get(document, ()), *NO_PROMISES)
    without = [
        sentence
        for sentence in sentences(document)
        if WORDS.search(sentence) and not any(part in sentence for part in known)
    ]
    assert without == [], "name the tests behind it in tests/docs/promises.toml"


def test_every_listed_promise_is_made_by_one_sentence() -> None:
    assert PROMISES.keys() <= set(DOCUMENTS)
    strange = {
        part: found
        for document, listed in PROMISES.items()
        for part, tests in listed.items()
        if len(found := {each for each in sentences(document) if part in each}) != 1 or not tests
    }
    assert strange == {}


def test_what_is_listed_as_no_promise_is_still_written_somewhere() -> None:
    written = " ".join(sentence for document in DOCUMENTS for sentence in sentences(document))
    assert [words for words in NO_PROMISES if words not in written] == []


def test_the_named_tests_are_there_and_those_of_promises_are_named() -> None:
    named = {name for listed in PROMISES.values() for tests in listed.values() for name in tests}
    assert named - named_in("tests") == set()
    assert named_in("tests/promises") - named == set()
