"""Channels that do not let us in, and lines that the server does not take."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from harnesses.irc.protocol.message import ACCEPTED, Receipt, ReceiptStatus
from harnesses.irc.session.handlers import JOIN_REFUSED
from tests.kit.irc_session import WELCOME, Story, inside


@pytest.mark.parametrize("numeric", sorted(set(JOIN_REFUSED) - {"470"}))
def test_every_refusal_of_a_channel_is_logged_and_tried_again(numeric: str) -> None:
    story = Story(["#k"])
    story.feed(*WELCOME)
    story.sent()
    with capture_logs() as logs:
        story.feed(f":s {numeric} Terra #K :\x02Cannot join channel")
    [entry] = logs
    assert (entry["event"], entry["numeric"]) == ("irc.join_refused", numeric)
    assert entry["reason"] == "Cannot join channel"
    (again,) = story.outgoing()
    assert (again.message.render(), again.delay) == ("JOIN #k", 60.0)
    [refusal] = story.session.refusals
    assert (refusal.channel, refusal.reason) == ("#K", "Cannot join channel")


def test_a_channel_that_stays_closed_is_knocked_at_less_and_less() -> None:
    story = Story(["#k"])
    story.feed(*WELCOME)
    pauses = []
    for _ in range(8):
        story.sent()
        story.feed(":s 474 Terra #k :Cannot join channel (+b)")
        pauses += [out.delay for out in story.outgoing()]
    assert pauses == [60, 120, 240, 480, 960, 1800, 1800, 1800]
    story.feed(":Terra!~t@host.example JOIN #k")
    assert story.session.refusals == []


def test_a_channel_that_we_are_forwarded_to_is_left_and_one_that_a_plugin_joins_is_kept() -> None:
    story = Story(["#from"])
    story.feed(*WELCOME)
    story.session.wrote("JOIN #from")
    story.sent()
    forward = ":s 470 Terra #from #to :You are forwarded"
    assert story.feed(forward, ":Terra!~t@host.example JOIN #to") == []
    assert "PART :#to" in story.sent()
    assert story.session.roster.channels == []
    story.session.wrote("JOIN #plugin,#Other")
    story.feed(":Terra!~t@h JOIN #plugin", ":Terra!~t@h JOIN #other")
    assert story.session.roster.channels == ["#plugin", "#other"]


def test_an_invitation_to_a_configured_channel_is_followed_and_another_is_an_event() -> None:
    story = Story(["#k"])
    story.wanted["#k"] = "key"
    story.feed(*WELCOME, ":s 473 Terra #k :Cannot join channel (+i)")
    story.sent()
    assert story.feed(":op!o@h INVITE Terra :#K") == []
    assert [(o.message.render(), o.delay) for o in story.outgoing()] == [("JOIN #k key", 0.0)]
    [event] = story.feed(":op!o@h INVITE Terra #other")
    assert (event.type, event.channel, event.nick) == ("INVITE", "#other", "op")
    story.feed(":Terra!~t@host.example JOIN #k")
    assert story.feed(":op!o@h INVITE somebody #other", ":op!o@h INVITE Terra #k") == []
    assert story.sent() == []


def test_a_key_that_is_changed_is_learnt() -> None:
    story = inside(":op!o@h MODE #c +kl new 5")
    assert story.wanted == {"#c": "new"}
    story.feed(":op!o@h MODE #c +k *")
    assert story.wanted == {"#c": "new"}
    story.feed(":op!o@h MODE #c -k new")
    assert story.wanted == {"#c": ""}


def test_without_echoes_a_line_is_taken_when_the_ping_after_it_is_answered() -> None:
    story = inside()
    (one, tags), (two, _) = story.track("#C"), story.track("alice")
    assert tags == {}
    fence = story.session.fence((one, two))
    assert fence
    later, _ = story.track("#c")
    story.feed(":s 401 Terra Alice :No such nick")
    assert story.receipts == [(two, Receipt(ReceiptStatus.REFUSED, "No such nick"))]
    story.feed(f":s PONG s :{fence.param(0)}")
    assert story.receipts[1:] == [(one, ACCEPTED)]
    why = "You need a registered nick to speak"
    story.feed(f":s 477 Terra #c :{why}")  # about a channel in which we are: no refused JOIN
    assert story.receipts[2:] == [(later, Receipt(ReceiptStatus.REFUSED, why))]
    assert story.session.refusals == []
