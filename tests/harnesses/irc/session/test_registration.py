"""From a fresh connection to a welcome."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from harnesses.irc.session.registration import login_problem
from tests.kit.irc_session import IN_CHANNEL, WELCOME, Story, inside

INTRODUCTION = ["PASS :pa ss", "NICK Terra", "USER terrarium 0 * :Terrarium"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ["NICK Terra", "USER terrarium 0 * :Terrarium"]),
        ({"password": "pa ss", "encrypted": True}, INTRODUCTION),
        ({"username": "bot", "realname": "A bot"}, ["NICK Terra", "USER bot 0 * :A bot"]),
    ],
)
def test_registration_begins_with_capabilities_and_who_we_are(
    settings: dict[str, Any], said: list[str]
) -> None:
    assert Story(**settings).first == ["CAP LS 302", *said]


@pytest.mark.parametrize(
    "answer", ["CAP * LS :", ":s 421 * CAP :Unknown command", ":s 451 * :You have not registered"]
)
def test_a_password_in_the_clear_waits_for_the_server_to_ask_for_tls(answer: str) -> None:
    story = Story(password="pa ss")
    assert story.first == ["CAP LS 302"]
    assert story.reply("NOTICE * :*** Looking up your hostname", "CAP * LS * :batch") == []
    assert story.reply(answer)[:3] == INTRODUCTION


def test_what_is_offered_is_requested_one_by_one_after_a_refusal_and_may_come_and_go() -> None:
    story = Story()
    assert story.reply(
        ":s CAP * LS * :server-time sasl=PLAIN batch", ":s CAP * LS :echo-message chghost"
    ) == ["CAP REQ :batch chghost server-time"]
    assert story.reply(":s CAP Terra ACK :batch chghost server-time ") == ["CAP END"]
    assert story.session.capabilities == {"batch", "chghost", "server-time"}
    story = Story()
    assert story.reply("CAP * LS :batch server-time", "CAP * NAK :batch server-time") == [
        "CAP REQ :batch server-time",
        "CAP REQ batch",
        "CAP REQ server-time",
    ]
    assert story.reply("CAP * NAK :batch", "CAP * ACK :server-time") == ["CAP END"]
    assert story.session.capabilities == {"server-time"}
    assert story.reply(*IN_CHANNEL, "CAP Terra NEW :chghost foo")[-1] == "CAP REQ chghost"
    story.feed("CAP Terra ACK :chghost", "CAP Terra DEL :chghost server-time")
    assert story.session.capabilities == frozenset()
    assert story.sent() == []


@pytest.mark.parametrize(
    "answer", [(), (":s 421 * CAP :Unknown command",), (":s 451 * :Register",)]
)
def test_a_server_without_cap_welcomes_us_too(answer: tuple[str, ...]) -> None:
    story = Story(["#c", "#d"])
    story.feed(*answer, *(f"@time=2026-01-01T00:00:00.000Z {line}" for line in WELCOME))
    assert story.session.is_ready
    assert story.session.isupport.statusmsg == "@+"
    assert story.sent() == ["JOIN #c", "JOIN #d"]
    assert not story.session.is_joined


def test_joining_waits_for_the_end_of_the_message_of_the_day() -> None:
    story = Story(encrypted=True, nickserv_password="secret")
    assert story.reply(":s 001 Terra :Welcome", ":s 375 Terra :-", ":s 372 Terra :- hello") == []
    assert story.reply(":s 376 Terra :End") == ["WHOIS NickServ", "JOIN #c"]


def test_a_taken_nick_costs_one_line_each_and_soon_waits() -> None:
    story = Story()
    asked = []
    for _ in range(6):
        (outgoing,) = story.outgoing(":s 433 * x :Nickname is already in use")
        asked.append((outgoing.message.params[0], outgoing.delay))
    assert asked[:2] == [("Terra_", 0.0), ("Terra__", 0.0)]
    assert [delay for _, delay in asked[2:]] == [2.0, 4.0, 8.0, 16.0]
    assert all(nick.startswith("Terra_") and len(nick) == 10 for nick, _ in asked[2:])


def test_a_nick_that_the_server_cannot_take_is_cut_or_becomes_a_plain_one() -> None:
    (outgoing,) = Story(nick="7up-Ünïcode").outgoing(":s 432 * 7up-Ünïcode :Erroneous nickname")
    assert outgoing.message.params[0].isascii()
    assert outgoing.message.params[0][:2] == "up"
    story = Story(nick="TerrariumBot")
    refusal = ":s 432 * TerrariumBot :Nickname too long, max. 9 characters"
    assert story.reply(refusal) == ["NICK Terrarium"]
    story.feed(":s 001 Terrarium :Welcome", ":s 005 Terrarium NICKLEN=9 :are", ":s 422 a :No")
    assert not any("NICK" in line for line in story.sent())
    story = Story([], nick="averylongnickname")  # which is silently cut, and still the wanted one
    story.feed(":s 001 averylong :Welcome averylong!~t@h")
    assert str(story.session.source) == "averylong!~t@h"
    story.feed(":s 005 averylong NICKLEN=9 :are", ":s 422 a :No")
    assert not any("NICK averylong" in line for line in story.sent()[1:])
    story = inside(":s 433 Terra Other :Nickname is already in use")
    assert (story.sent(), story.session.nick) == ([], "Terra"), "one that was not ours to ask for"


LOST = (":s 433 * Terra :Nickname is already in use", ":s 001 Terra_ :Welcome")
NO_MOTD = ":s 422 Terra_ :No MOTD"


def lost_nick(*lines: str, **settings: Any) -> Story:
    """A story in which somebody else has our nick."""
    story = Story([], **settings)
    story.feed(*LOST, *lines, NO_MOTD)
    return story


@pytest.mark.parametrize("gone", [":Terra!x@y QUIT :bye", ":tErRa!x@y NICK somebody"])
@pytest.mark.parametrize("ours", ["Terra_", "Guest1"])
def test_the_wanted_nick_is_taken_back_when_its_holder_goes(gone: str, ours: str) -> None:
    story = lost_nick()
    story.feed(*([f":Terra_!~t@h NICK {ours}"] if ours != "Terra_" else []))
    story.sent()
    assert story.reply(":other!x@y QUIT :bye", ":other!x@y NICK Terra2") == []
    assert story.reply(gone) == ["NICK Terra"]


def test_the_wanted_nick_is_watched_where_the_server_can_and_else_asked_for() -> None:
    story = lost_nick(":s 005 Terra_ MONITOR=30 :are supported")
    assert story.sent()[-1] == "MONITOR + Terra"
    assert story.reply(":s 730 Terra_ :Terra!x@y") == []
    assert story.reply(":s 731 Terra_ :Terra") == ["NICK Terra"]
    taken = ":s 433 Terra_ Terra :Nickname is already in use"
    assert story.reply(taken) == [], "the next 731 will tell"
    assert story.reply(":Terra_!~t@h NICK Terra") == ["MONITOR - Terra"]
    assert story.reply(":s 731 Terra :Terra") == []
    story = lost_nick(":s 005 Terra_ MONITOR=1 :are supported")
    story.sent()
    full = ":s 734 Terra_ 1 Terra :Monitor list is full"
    assert story.reply(full) == ["ISON Terra", "NICK Terra"]


def test_without_that_the_nick_and_whether_it_is_free_are_asked_for_now_and_then() -> None:
    story = lost_nick()
    delayed = [(out.message.render(), out.delay) for out in story.outgoing()]
    assert delayed[-2:] == [("ISON Terra", 30.0), ("NICK Terra", 300.0)]
    story.feed(":s 303 Terra_ :tErra")
    assert [(out.message.render(), out.delay) for out in story.outgoing()] == [("ISON Terra", 30.0)]
    assert story.reply(":s 303 Terra_ :")[0] == "NICK Terra"
    (again,) = story.outgoing(":s 433 Terra_ Terra :Nickname is already in use")
    assert (again.message.render(), again.delay) == ("NICK Terra", 300.0)
    assert again.unless
    assert not again.unless()
    story.feed(":Terra_!~t@h NICK Terra")
    assert again.unless()


def test_nickserv_sends_the_holder_of_our_nick_away() -> None:
    story = lost_nick(encrypted=True, nickserv_password="secret")
    story.feed(
        ":s 311 Terra_ NickServ N services.example * :Nickname services",
        ":s 313 Terra_ NickServ :is a Network Service",
        ":s 318 Terra_ NickServ :End of WHOIS",
    )
    sent = {out.message.render(): out.delay for out in story.outgoing()}
    assert sent["PRIVMSG NickServ :GHOST Terra secret"] == 0
    assert sent["NICK Terra"] > 0


def test_a_nick_that_is_taken_from_us_is_asked_for_again_each_time_later() -> None:
    story = Story([])
    story.feed(*WELCOME)
    pauses = []
    for number in range(8):
        story.sent()
        story.feed(f":Terra!~t@h NICK :0AAAAAAA{number}")
        asked = {out.message.render(): out for out in story.outgoing()}
        pauses.append(asked["NICK Terra"].delay)
        assert (unless := asked["NICK Terra"].unless)
        assert not unless()
        story.feed(f":0AAAAAAA{number}!~t@h NICK Terra")
        assert unless()
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]


def test_a_server_that_says_nothing_to_cap_is_told_who_we_are_all_the_same() -> None:
    story = Story([], password="pa ss")
    assert [(out.message.render(), out.delay) for out in story.later] == [
        (line, 5.0) for line in INTRODUCTION
    ]
    needless = story.later[0].unless
    assert needless
    assert not needless()
    story.feed("CAP * LS :")
    assert needless()


def test_a_login_that_is_required_ends_a_connection_without_it() -> None:
    story = Story([], True, sasl_required=True, sasl_username="t", sasl_password="p")
    with capture_logs() as logs:
        story.feed("CAP * LS :batch", "CAP * ACK :batch")
    assert story.session.error
    assert "the server offers no SASL" in story.session.error
    assert story.sent() == []
    assert logs == []


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_login_that_did_not_happen_is_in_the_log(encrypted: bool) -> None:
    story = Story([], encrypted, sasl_username="t", sasl_password="p", sasl=())
    with capture_logs() as logs:
        story.feed("CAP * LS :", *WELCOME)
    [entry] = logs
    assert entry["event"] == "irc.not_logged_in"
    assert "the server offers no SASL" in entry["why"]
    assert login_problem(story.session) == entry["why"]


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("X", ["JOIN #b key", "JOIN #a", "JOIN #c"]),
        ("TARGMAX=NAMES:1,JOIN:2,PRIVMSG:3", ["JOIN #b,#a key", "JOIN #c"]),
        ("TARGMAX=JOIN:", ["JOIN #b,#a,#c key"]),
        ("MAXTARGETS=20 BOT=B", ["MODE Terra +B", "JOIN #b,#a,#c key"]),
    ],
)
def test_as_many_channels_are_joined_at_once_as_the_server_takes_and_bots_say_that_they_are(
    token: str, said: list[str]
) -> None:
    story = Story(["#a", "#b", "#c"])
    story.wanted["#b"] = "key"
    story.feed(":s 001 Terra :Welcome", f":s 005 Terra {token} :are", ":s 422 Terra :No")
    assert [line for line in story.sent() if line.startswith(("JOIN", "MODE"))] == said
