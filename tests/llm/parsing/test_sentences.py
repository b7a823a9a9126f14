"""An answer ends after so many sentences, whatever way its stream is cut."""

from __future__ import annotations

import pytest

from llm.parsing.stream_parser import SentenceLimit


@pytest.mark.parametrize(
    ("text", "one", "two"),
    [
        ("Paris.", "Paris.", "Paris."),
        ("Paris. It is big. Very.", "Paris.", "Paris. It is big."),
        (
            "It has 3.5 million, e.g. Bob. Yes.",
            "It has 3.5 million, e.g. Bob.",
            "It has 3.5 million, e.g. Bob. Yes.",
        ),
        ('"Slow." Or so.', '"Slow."', '"Slow." Or so.'),
        ("Dr. Who wrote it! Really?", "Dr. Who wrote it!", "Dr. Who wrote it! Really?"),
        ("No end", "No end", "No end"),
        ("A list\n\nfollows. More", "A list", "A list\n\nfollows."),
        ("1. One thing. Two", "1. One thing.", "1. One thing. Two"),
    ],
)
def test_it_ends_after_so_many_sentences(text: str, one: str, two: str) -> None:
    for most, wanted in ((1, one), (2, two), (None, text)):
        for pieces in ([text], list(text)):
            limit = SentenceLimit(most)
            shown = "".join([*map(limit.feed, pieces), limit.finish()])
            assert shown.strip() == wanted
