"""When there is something to make of turns: by their number, and by their size."""

from __future__ import annotations

from llm.memory.services import JobKind, pending_jobs
from storage.memory.consolidation_state import Watermarks

ROOM = Watermarks("#frogs", version=7)


def turns(*ids: int, size: int = 100) -> list[tuple[int, int]]:
    return [(turn, size) for turn in ids]


def through(
    watermarks: Watermarks, sizes: list[tuple[int, int]], gaps: bool = False
) -> dict[JobKind, int]:
    return {each.work: each.through for each in pending_jobs(watermarks, sizes, gaps)}


def test_nothing_is_due_after_two_exchanges() -> None:
    assert pending_jobs(ROOM, turns(1, 2), gaps=False) == []


def test_every_third_exchange_is_told_and_every_fifth_studied() -> None:
    assert through(ROOM, turns(1, 2, 3)) == {JobKind.RECORD_EPISODES: 3}
    assert through(ROOM, turns(1, 2, 3, 4)) == {JobKind.RECORD_EPISODES: 3}
    assert through(ROOM, turns(2, 4, 6, 8, 10)) == {
        JobKind.RECORD_EPISODES: 6,
        JobKind.EXTRACT_FACTS: 10,
    }
    watermarks = Watermarks("#frogs", episodes=6, facts=10)
    assert through(watermarks, turns(8, 10)) == {}
    assert through(watermarks, turns(8, 10, 12)) == {JobKind.RECORD_EPISODES: 12}


def test_over_forty_turns_all_but_the_last_thirty_are_folded() -> None:
    watermarks = Watermarks("#frogs", episodes=99, facts=99)
    assert through(watermarks, turns(*range(1, 41))) == {}
    assert through(watermarks, turns(*range(1, 42))) == {JobKind.SUMMARISE: 11}
    summarised = Watermarks("#frogs", summary=11, episodes=99, facts=99)
    assert through(summarised, turns(*range(1, 42))) == {}


def test_long_turns_are_folded_before_there_are_forty() -> None:
    watermarks = Watermarks("#frogs", episodes=99, facts=99)
    assert through(watermarks, turns(*range(1, 11), size=3_000)) == {}
    assert through(watermarks, turns(*range(1, 12), size=3_000)) == {JobKind.SUMMARISE: 6}
    assert through(watermarks, turns(1, 2, size=99_000)) == {JobKind.SUMMARISE: 1}


def test_a_summary_that_was_deleted_is_wanted_again() -> None:
    assert through(Watermarks("#frogs", wanted=8, episodes=9, facts=9), turns(5, 9)) == {
        JobKind.SUMMARISE: 8
    }


def test_a_missing_episode_is_made_also_when_nothing_new_was_said() -> None:
    assert through(ROOM, [], gaps=True) == {JobKind.RECORD_EPISODES: 0}


def test_what_begins_at_the_same_turn_is_the_same_job_until_something_is_forgotten() -> None:
    first, later = (
        pending_jobs(ROOM, turns(1, 2, 3), gaps=False),
        pending_jobs(ROOM, turns(1, 2, 3, 4), gaps=False),
    )
    assert [each.mark for each in first] == [each.mark for each in later]
    (anew,) = pending_jobs(Watermarks("#frogs", version=8), turns(1, 2, 3), gaps=False)
    assert anew.mark != first[0].mark


def test_a_job_for_missing_episodes_does_not_stand_in_for_the_next_exchanges() -> None:
    (missing,) = pending_jobs(ROOM, turns(1, 2), gaps=True)
    (next_ones,) = pending_jobs(ROOM, turns(1, 2, 3), gaps=True)
    assert missing.mark != next_ones.mark
