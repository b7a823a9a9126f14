"""Which lines belong to a question: the conversations of a channel, told apart without a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.threads.channel_threads import MAX_PEOPLE, TRACKED_LINES, People, Threads
from llm.threads.model import InverseDocumentFrequency, words

KERNEL = (
    ("alice", "my wifi card dies with the new kernel"),
    ("bob", "alice: which kernel is that?"),
    ("alice", "bob: 6.12, the wifi was fine with 6.6"),
    ("bob", "alice: boot the old kernel and look at dmesg for iwlwifi"),
)
SOUP = (
    ("carol", "does anybody cook lentil soup here?"),
    ("dave", "carol: yes, lentils with cumin and lemon"),
    ("carol", "dave: how much cumin for a big pot?"),
    ("dave", "carol: two spoons, more lemon at the end"),
)


def talk(threads: Threads, *lines: tuple[str, str]) -> list[int]:
    """Say lines, one a minute."""
    return [threads.on_message(nick, text, minute) for minute, (nick, text) in enumerate(lines)]


def crossed() -> tuple[Threads, list[int], list[int]]:
    """Two conversations at once, and which lines are whose."""
    threads = Threads()
    lines = [line for pair in zip(KERNEL, SOUP, strict=True) for line in pair]
    numbers = talk(threads, *lines)
    return threads, numbers[::2], numbers[1::2]


def test_a_question_finds_the_lines_of_its_own_conversation() -> None:
    threads, kernel, soup = crossed()
    assert sorted(threads.find_related("alice", "what was I to look for in dmesg?", 9, 4)) == kernel
    assert sorted(threads.find_related("dave", "how do I grind cumin?", 9, 4)) == soup


def test_somebody_who_has_said_nothing_finds_what_shares_rare_words() -> None:
    threads, kernel, soup = crossed()
    chosen = threads.find_related("erin", "is iwlwifi broken in every new kernel?", 9, 3)
    assert set(chosen) <= set(kernel), (chosen, soup)


def test_a_new_nick_is_the_same_person() -> None:
    threads, kernel, _ = crossed()
    threads.on_rename("alice", "alice_afk")
    assert sorted(threads.find_related("alice_afk", "so, the old one?", 9, 4)) == kernel


def test_whoever_takes_a_nick_that_was_given_up_is_somebody_else() -> None:
    people = People(lambda word: False)
    alice, bob = people.person("guest42"), people.person("bob")
    people.on_rename("guest42", "alice")
    assert people.find_addressee(bob, "guest42: hello") == (alice, frozenset({alice}))
    other = people.person("guest42")
    assert other not in (alice, bob)
    assert people.find_addressee(bob, "guest42: hello") == (other, frozenset({other}))
    assert people.person("alice") == alice
    people.on_rename("alice", "alice_afk")  # still hers, whichever of the two she comes back with
    assert people.person("alice") == people.person("alice_afk") == alice


def test_to_ask_changes_nothing() -> None:
    threads, _, _ = crossed()
    first = threads.find_related("alice", "and now?", 9, 8)
    assert threads.find_related("alice", "and now?", 9, 8) == first


def test_lines_are_given_once_and_no_more_than_wanted() -> None:
    threads = Threads()
    talk(threads, *KERNEL * 200)
    chosen = threads.find_related("alice", "kernel?", 900, 50)
    assert len(chosen) == len(set(chosen)) == 50
    assert min(chosen) >= 800 - TRACKED_LINES
    assert threads.find_related("alice", "kernel?", 900, 0) == []


def test_an_empty_channel_has_no_lines() -> None:
    assert Threads().find_related("alice", "anybody here?", 0, 50) == []


def test_what_is_kept_of_a_long_day_is_bounded() -> None:
    threads = Threads()
    talk(threads, *((f"n{i % 40}", f"n{i % 39}: word{i} and word{i + 1}") for i in range(700)))
    held = {name: len(value) for name, value in vars(threads).items() if hasattr(value, "__len__")}
    talk(threads, *((f"n{i % 40}", f"n{i % 39}: word{i} and word{i + 1}") for i in range(700)))
    for name, value in vars(threads).items():
        if hasattr(value, "__len__"):
            assert len(value) <= held[name] + 2, name


def test_of_people_who_come_and_go_the_latest_are_known() -> None:
    threads = Threads()
    first = threads.people.person("alice")
    for number in range(MAX_PEOPLE):
        threads.on_join(f"guest{number}x")
        threads.on_rename(f"guest{number}x", f"visitor{number}y")
    held = [len(value) for value in vars(threads.people).values() if hasattr(value, "__len__")]
    assert max(held) == MAX_PEOPLE
    last = threads.people.person(f"visitor{MAX_PEOPLE - 1}y")
    assert threads.people.find_addressee(first, f"visitor{MAX_PEOPLE - 1}y: hi")[0] == last
    assert threads.people.person("alice") != first


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.text(), st.integers(-5, 2**40)), max_size=30)
)
def test_no_line_is_too_odd(lines: list[tuple[str, str, int]]) -> None:
    threads = Threads()
    for nick, text, minute in lines:
        threads.on_message(nick, text, minute)
    chosen = threads.find_related("a", "what?", 0, 20)
    assert len(chosen) == min(20, len(lines))


@pytest.mark.parametrize(
    ("text", "addressee", "named"),
    [
        ("bob: hello", "bob", {"bob"}),
        ("BOB, hello", "bob", {"bob"}),
        ("bob_: back again?", "bob", {"bob"}),
        ("ask carol or bob", None, {"bob", "carol"}),
        ("(carol) knows", "carol", {"carol"}),
        ("alice: said to herself", None, set()),
        ("the the the", None, set()),
        ("nobody: here", None, set()),
        ("", None, set()),
        (":", None, set()),
    ],
)
def test_nicks_in_a_line(text: str, addressee: str | None, named: set[str]) -> None:
    people = People(lambda word: word == "the")
    numbers = {nick: people.person(nick) for nick in ("alice", "bob", "carol", "the")}
    found = people.find_addressee(numbers["alice"], text)
    assert found == (
        numbers[addressee] if addressee else None,
        frozenset(numbers[nick] for nick in named),
    )


def test_a_word_that_the_channel_repeats_is_no_longer_rare() -> None:
    idf = InverseDocumentFrequency({"the": 900}, 1_000)
    before = idf.squared_weight("lentils")
    for _ in range(20):
        idf.learn(words("lentils again"))
    assert idf.squared_weight("the") < idf.squared_weight("lentils") < before
    assert idf.is_common("the")
    assert not idf.is_common("lentils")


def test_words_learned_long_ago_fade() -> None:
    idf = InverseDocumentFrequency({}, 1_000)
    for index in range(12_000):
        idf.learn(words(f"word{index} stays"))
    assert idf.squared_weight("word0") == idf.squared_weight("unheard")
    assert idf.squared_weight("word11999") < idf.squared_weight("unheard")
    assert idf.squared_weight("stays") < idf.squared_weight("word11999")
