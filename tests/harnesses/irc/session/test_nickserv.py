"""NickServ's password goes to services only, over a connection that nobody else reads."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from harnesses.irc.session.nick import claim_nick
from harnesses.irc.settings import NetworkSettings
from tests.kit.irc_session import WELCOME, Story

SERVICES = ":s 311 Terra NickServ N services.example * :Nickname services"
IS_SERVICE = ":s 313 Terra NickServ :is a Network Service"
END = ":s 318 Terra NickServ :End of WHOIS"
STRANGER = ":s 311 Terra NickServ mallory evil.example * :mallory"


def welcomed(*, encrypted: bool = True, **settings: Any) -> Story:
    """A session that has been welcomed, and has a password for NickServ."""
    story = Story([], encrypted=encrypted, nickserv_password="secret", **settings)
    story.feed(*WELCOME)
    return story


def test_services_are_told_once_the_server_has_said_that_it_is_they() -> None:
    story = welcomed()
    assert story.sent() == ["WHOIS NickServ"]
    assert story.reply(SERVICES, IS_SERVICE) == []
    assert story.reply(END) == ["PRIVMSG NickServ :IDENTIFY secret"]


@pytest.mark.parametrize("answer", [[STRANGER], [":s 401 Terra NickServ :No such nick"]])
def test_who_is_merely_called_nickserv_is_not_told_the_password(answer: list[str]) -> None:
    story = welcomed()
    with capture_logs():
        story.feed(*answer, END)
    assert story.sent() == ["WHOIS NickServ"]


def test_nobody_is_told_the_password_on_a_connection_that_others_can_read() -> None:
    with capture_logs() as logs:
        story = welcomed(encrypted=False)
    assert story.reply(SERVICES, IS_SERVICE, END) == []
    assert [log["event"] for log in logs] == ["irc.nickserv_not_told"]


def test_a_mask_of_the_settings_decides_where_it_is_given() -> None:
    mask = "nickserv!*@services.example"
    story = welcomed(nickserv_mask=mask)
    assert story.reply(SERVICES, END) == ["WHOIS NickServ", "PRIVMSG NickServ :IDENTIFY secret"]
    story = welcomed(nickserv_mask=mask)
    with capture_logs():
        story.feed(STRANGER, IS_SERVICE, END)
    assert story.sent() == ["WHOIS NickServ"]


def test_a_whois_that_stays_unanswered_does_not_keep_the_password_back_for_ever() -> None:
    story = welcomed()
    assert story.sent() == ["WHOIS NickServ"]
    settings = NetworkSettings(nick="Gaia", nickserv_password="secret", server="irc.example")
    claim_nick(story.session, settings)
    assert story.sent().count("WHOIS NickServ") == 2
    assert story.reply(SERVICES, IS_SERVICE, END) == [
        "PRIVMSG NickServ :IDENTIFY secret",
        "PRIVMSG NickServ :IDENTIFY Gaia secret",
        "PRIVMSG NickServ :GHOST Gaia secret",
    ]
