"""Lines that the server finds too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from harnesses.irc.protocol.message import ACCEPTED
from tests.kit.irc_session import echoing, inside

TOO_LONG = ":s 417 Terra :Input line was too long"
LONG = "PRIVMSG #c :all that is said in this one is too long for it"
HALVES = ["PRIVMSG #c :all that is said in this", "PRIVMSG #c :one is too long for it"]


def test_a_line_that_is_too_long_is_said_again_in_pieces_and_once() -> None:
    story = inside()
    for line in ("PRIVMSG #c :short", LONG, "NOTICE #c :short too", "PONG :x"):
        story.session.wrote(line)
    assert story.reply(TOO_LONG) == HALVES
    for line in HALVES:
        story.session.wrote(line)
    assert story.reply(TOO_LONG, TOO_LONG) == []


def test_an_action_that_is_too_long_becomes_several() -> None:
    story = inside()
    story.session.wrote("PRIVMSG #c :\x01ACTION waves to all of you here\x01")
    story.feed(TOO_LONG)
    pieces = ["PRIVMSG #c :\x01ACTION waves to all\x01", "PRIVMSG #c :\x01ACTION of you here\x01"]
    assert story.sent() == pieces


@pytest.mark.parametrize(
    "line", ["JOIN #c,#d,#e", "PRIVMSG #c :\x01VERSION of many words\x01", "PRIVMSG #c :x"]
)
def test_a_line_that_cannot_be_cut_is_not_said_again(line: str) -> None:
    story = inside()
    story.session.wrote("PRIVMSG #c :")
    story.session.wrote(line)
    assert story.reply(TOO_LONG) == []


def test_what_was_said_long_ago_was_not_too_long() -> None:
    story = inside()
    story.session.wrote(LONG)
    story.now += timedelta(seconds=11)
    assert story.reply(TOO_LONG) == []


@pytest.mark.parametrize("labelled", [True, False])
def test_a_labelled_line_that_is_too_long_counts_as_said(labelled: bool) -> None:
    story = echoing()
    story.sent()
    label, longer = (story.track("#c")[0] for _ in range(2))
    story.session.wrote(f"@label={label} {LONG}")
    if labelled:  # then the server itself says which one it was
        story.session.wrote(f"@label={longer} {LONG} and more")
    story.feed(f"@label={label} {TOO_LONG}" if labelled else TOO_LONG)
    assert story.receipts == [(label, ACCEPTED)]
    pieces = story.outgoing()
    assert [replace(piece.message, tags={}).render() for piece in pieces] == HALVES
    echoes = [
        f"@label={piece.message.tags['label']} :Terra!t@h {half}"
        for piece, half in zip(pieces, HALVES, strict=True)
    ]
    assert story.feed(*echoes) == [], "the log has the line as it was"
