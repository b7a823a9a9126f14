"""When there is something to make of turns: by their number, and by their size."""

from __future__ import annotations

import pytest

from llm.memory.consolidation import Due, due_in
from storage.memory.memories import Watermarks

ROOM = Watermarks("#frogs", version=7)
SUMMARISED = Watermarks("#frogs", episodes=99, facts=99)


def turns(*ids: int, size: int = 100) -> list[tuple[int, int]]:
    return [(turn, size) for turn in ids]


@pytest.mark.parametrize(
    ("marks", "sizes", "due"),
    [
        (ROOM, turns(1, 2), Due()),
        # Every third exchange is told, and every fifth searched, in groups.
        (ROOM, turns(1, 2, 3), Due(episodes=3)),
        (ROOM, turns(1, 2, 3, 4), Due(episodes=3)),
        (ROOM, turns(2, 4, 6, 8, 10, 12), Due(episodes=6, facts=10)),
        (Watermarks("#frogs", episodes=6, facts=10), turns(8, 10), Due()),
        (Watermarks("#frogs", episodes=6, facts=10), turns(8, 10, 12), Due(episodes=12)),
        # Over forty turns all but the last thirty are summed up.
        (SUMMARISED, turns(*range(1, 41)), Due()),
        (SUMMARISED, turns(*range(1, 42)), Due(summary=11)),
        (Watermarks("#frogs", summary=11, episodes=99, facts=99), turns(*range(1, 42)), Due()),
        # Long turns are summed up before there are forty.
        (SUMMARISED, turns(*range(1, 11), size=3_000), Due()),
        (SUMMARISED, turns(*range(1, 12), size=3_000), Due(summary=6)),
        (SUMMARISED, turns(1, 2, size=99_000), Due(summary=1)),
        # A summary that was deleted has to reach as far again.
        (Watermarks("#frogs", wanted=8, episodes=9, facts=9), turns(5, 9), Due(summary=8)),
    ],
)
def test_what_is_due_follows_from_the_number_and_the_size_of_turns(
    marks: Watermarks, sizes: list[tuple[int, int]], due: Due
) -> None:
    assert due_in(marks, sizes) == due
