"""Each sentence of the README and the docs that promises privacy, safety or durability has a test.

The sentence names its test in an HTML comment:

    What is said in one channel is never shown in another. <!-- promise: test_... -->

Several names are separated by commas. `test_every_promise_names_its_tests` also finds sentences
that sound like promises but name no test; false positives are listed in `NO_PROMISES` by a part of
their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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

NO_PROMISES = (
    "The log output is left out here",
    "or not on the network, that time is left out",
    "The answers to other people are left out",
    "in a tool it is left out",
    "without it they are left out",
    "Files that require an account are refused with 401 or 403",
    "a nick alone proves nothing, so what is said under it",
    "When a call is refused, its result tells the model why",
    "are not retried after a restart, as the person saw the bot quit",
    "what is not logged, and being forgotten",  # the text of a link
    "(`background` for those that nobody waits for)",
    "also happens when one of them changes; an invalid file changes nothing",
    "An invalid file changes nothing, and the log says why",
    "If only people here could answer and nobody has",
    "## What never reaches people",
    "accepted as a hint that changes nothing here",
    "always the model `X` of the table and never an alias",
    "An invalid table changes nothing, and the log says why",
    "Importing the same file again adds nothing",
    "offers it when nothing was found",
    "## What is not logged, and for how long",
    "Imported logs contain neither accounts nor hosts",
    "When nothing is known three prompts",
    "and neither uses tools by itself nor keeps a memory",
    "and never more than it was trained for",
    'or "Nobody said that here."',
    "the others cost nothing",
    "## What is never fetched",
    "so only you should be able to write to the folder",
)

_MARK = re.compile(r"<!-- promise: ([\w, ]+) -->")
_BLOCKS = re.compile(r"```.*?```|<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=(?:[-|#*]|\d+\.) ?)")
_SENTENCE = re.compile(r"(?<=[.!?:;|])\s+(?!<!--)(?=[A-Z`*\[(|])")


@cache
def sentences(document: str) -> tuple[str, ...]:
    """Return the sentences of a document, each on one line with its trailing comments."""
    text = _BLOCKS.sub("", (ROOT / document).read_text(encoding="utf-8"))
    found: list[str] = []
    for paragraph in _PARAGRAPH.split(text):
        if not paragraph.startswith("    "):
            found += _SENTENCE.split(" ".join(paragraph.split()))
    return tuple(found)


def promised_tests(sentence: str) -> list[str]:
    """Return the names of the tests in a sentence's comments."""
    return [
        name.strip()
        for names in _MARK.findall(sentence)
        for name in names.split(",")
        if name.strip()
    ]


@cache
def all_tests() -> frozenset[str]:
    """Return the names of all test functions."""
    return frozenset(_names())


def _names() -> Iterator[str]:
    for path in (ROOT / "tests").rglob("test_*.py"):
        yield from re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_promise_names_its_tests(document: str) -> None:
    without = [
        sentence
        for sentence in sentences(document)
        if WORDS.search(_MARK.sub("", sentence))
        and not promised_tests(sentence)
        and not any(words in sentence for words in NO_PROMISES)
    ]
    assert without == [], "name the test behind it: <!-- promise: test_... -->"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_named_test_is_there(document: str) -> None:
    named = {name for sentence in sentences(document) for name in promised_tests(sentence)}
    assert named - all_tests() == set()


def test_what_is_listed_as_no_promise_is_still_written_somewhere() -> None:
    written = " ".join(sentence for document in DOCUMENTS for sentence in sentences(document))
    assert [words for words in NO_PROMISES if words not in written] == []


def test_every_test_of_the_promises_is_named_by_a_sentence() -> None:
    named = {
        name
        for document in DOCUMENTS
        for sentence in sentences(document)
        for name in promised_tests(sentence)
    }
    there = {
        name
        for path in (ROOT / "tests" / "promises").glob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert there - named == set()
