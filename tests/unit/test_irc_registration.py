"""From a fresh connection to a welcome."""

from __future__ import annotations

import pytest

from tests.kit.irc_session import IN_CHANNEL, WELCOME, Story, inside


def test_registration_begins_with_capabilities() -> None:
    assert Story().first == ["CAP LS 302", "NICK Terra", "USER terrarium 0 * :Terrarium"]


INTRODUCTION = ["PASS :pa ss", "NICK Terra", "USER terrarium 0 * :Terrarium"]


def test_a_password_goes_out_at_once_where_nobody_reads_along() -> None:
    assert Story(password="pa ss", encrypted=True).first == ["CAP LS 302", *INTRODUCTION]


@pytest.mark.parametrize(
    "answer", ["CAP * LS :", ":s 421 * CAP :Unknown command", ":s 451 * :You have not registered"]
)
def test_a_password_in_the_clear_waits_for_the_server_to_ask_for_tls(answer: str) -> None:
    story = Story(password="pa ss")
    assert story.first == ["CAP LS 302"]
    story.feed("NOTICE * :*** Looking up your hostname", "CAP * LS * :batch")
    assert story.sent() == []
    story.feed(answer)
    assert story.sent()[:3] == INTRODUCTION


def test_only_what_is_offered_is_requested() -> None:
    story = Story()
    story.feed(":s CAP * LS * :server-time sasl=PLAIN batch", ":s CAP * LS :echo-message chghost")
    assert story.sent() == ["CAP REQ :batch chghost server-time"]
    story.feed(":s CAP Terra ACK :batch chghost server-time ")
    assert story.sent() == ["CAP END"]
    assert story.session.capabilities == {"batch", "chghost", "server-time"}


def test_a_server_that_offers_nothing_we_want_is_not_kept_waiting() -> None:
    story = Story()
    story.feed("CAP * LS :sasl echo-message")
    assert story.sent() == ["CAP END"]


def test_one_refused_capability_does_not_cost_the_others() -> None:
    story = Story()
    story.feed("CAP * LS :batch server-time", "CAP * NAK :batch server-time")
    assert story.sent() == ["CAP REQ :batch server-time", "CAP REQ batch", "CAP REQ server-time"]
    story.feed("CAP * NAK :batch", "CAP * ACK :server-time")
    assert story.sent() == ["CAP END"]
    assert story.session.capabilities == {"server-time"}


def test_capabilities_come_and_go_later() -> None:
    story = inside("CAP Terra NEW :batch foo")
    story.feed("CAP Terra NEW :setname")
    assert story.sent() == ["CAP REQ setname"]
    story.feed("CAP Terra ACK :setname", "CAP Terra DEL :setname")
    assert story.session.capabilities == frozenset()
    assert story.sent() == []


@pytest.mark.parametrize(
    "answer", [(), (":s 421 * CAP :Unknown command",), (":s 451 * :Register",)]
)
def test_a_server_without_cap_welcomes_us_too(answer: tuple[str, ...]) -> None:
    story = Story(["#c", "#d"])
    story.feed(*answer, *WELCOME)
    assert story.session.ready
    assert story.sent() == ["JOIN #c", "JOIN #d"]
    assert not story.session.joined


def test_tags_on_numerics_do_no_harm() -> None:
    story = Story()
    story.feed(*(f"@time=2026-01-01T00:00:00.000Z {line}" for line in IN_CHANNEL))
    assert story.session.joined
    assert story.session.isupport.statusmsg == "@+"


def test_joining_waits_for_the_end_of_the_message_of_the_day() -> None:
    story = Story(nickserv_password="secret")
    story.feed(":s 001 Terra :Welcome", ":s 375 Terra :-", ":s 372 Terra :- hello")
    assert story.sent() == []
    story.feed(":s 376 Terra :End")
    assert story.sent() == ["PRIVMSG NickServ :IDENTIFY secret", "JOIN #c"]


def test_a_taken_nick_costs_one_line_each_and_soon_waits() -> None:
    story = Story()
    asked = []
    for _ in range(6):
        story.feed(":s 433 * x :Nickname is already in use")
        (outgoing,) = story.outgoing()
        asked.append((outgoing.message.params[0], outgoing.delay))
    assert asked[:2] == [("Terra_", 0.0), ("Terra__", 0.0)]
    assert [delay for _, delay in asked[2:]] == [2.0, 4.0, 8.0, 16.0]
    assert all(nick.startswith("Terra_") and len(nick) == 10 for nick, _ in asked[2:])


def test_a_nick_the_server_cannot_take_becomes_a_plain_one() -> None:
    story = Story(nick="7up-Ünïcode")
    story.feed(":s 432 * 7up-Ünïcode :Erroneous nickname")
    (outgoing,) = story.outgoing()
    assert outgoing.message.params[0].isascii()
    assert outgoing.message.params[0][:2] == "up"


def test_a_refused_nick_after_the_welcome_is_left_alone() -> None:
    story = inside(":s 433 Terra Other :Nickname is already in use")
    assert story.sent() == []
    assert story.session.nick == "Terra"


def test_the_nick_is_the_one_the_server_gives() -> None:
    story = Story(nick="averylongnickname")
    story.feed(":s 001 averylong :Welcome averylong!~t@h")
    assert story.session.nick == "averylong"
    assert str(story.session.source) == "averylong!~t@h"
