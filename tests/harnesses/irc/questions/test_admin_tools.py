"""Which words of an admin are an order to kick, ban or set a mode, and which are only talk."""

from __future__ import annotations

import pytest

from harnesses.irc.questions.admin_tools import is_mode_order, is_order

KICK = "kick|kickban|remove|throw|eject|boot"


@pytest.mark.parametrize(
    "text",
    [
        "kick bob",
        "Kick bob, please!",
        "please throw bob out",
        "bob is spamming again. kick him",
        "mode +m, and remove bob now",
        "bob floods, so please kick him",
        "can you kick bob?",
        "would you please boot bob?",
        "hey, could you kickban bob",
        "please kick bob, I want him gone",
        "kick bob for his comment",
    ],
)
def test_an_order_is_one(text: str) -> None:
    assert is_order(text, KICK, "bob")


@pytest.mark.parametrize(
    "text",
    [
        "why was bob kicked?",
        "why did you kick bob?",
        "who would kick bob",
        "did alice remove bob and kick carol?",
        "please never kick bob",
        "dont kick bob",
        "you can’t kick bob",
        "can you not kick bob?",
        "don't kick bob",
        "should I kick bob?",
        "and what if I kick bob?",
        "kick bob?",
        "bob likes kickers",
        "alice has kicked bob; tell me more",
        "summarise the kicks of bob",
    ],
)
def test_talk_about_a_kick_is_none(text: str) -> None:
    assert not is_order(text, KICK, "bob")


@pytest.mark.parametrize(
    "nick", ["vincent", "agent", "not-me", "never", "isabel", "arek[0]", "what"]
)
def test_no_nick_turns_an_order_into_talk(nick: str) -> None:
    assert is_order(f"kick {nick}", KICK, nick)
    assert is_order(f"{nick} floods, please kick {nick.upper()}!", KICK, nick)
    assert not is_order(f"do not kick {nick}", KICK, nick)
    assert not is_order(f"{nick} kick", KICK, nick)


@pytest.mark.parametrize(
    "text",
    ["set +m", "+m please", "can you set +tm?", "topic: hi. mode +m, please", "is it on? +m"],
)
def test_an_order_for_a_mode_is_one(text: str) -> None:
    assert is_mode_order(text, "+m", "")


@pytest.mark.parametrize(
    "text",
    [
        "what does +m do?",
        "is the channel +m?",
        "don't set +m",
        "set -m",
        "set +nt",
        "why +m",
        "1+m",
    ],
)
def test_talk_about_a_mode_is_none(text: str) -> None:
    assert not is_mode_order(text, "+m", "")


def test_talk_about_a_ban_of_somebody_is_no_order_for_the_mode() -> None:
    assert is_mode_order("+b never", "+b", "never")
    assert not is_mode_order("what does +b bob do?", "+b", "bob")
