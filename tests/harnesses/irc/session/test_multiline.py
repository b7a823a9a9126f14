"""Messages of several lines: one for whoever answers, line by line in the log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harnesses.core.services.shared_log import split_lines
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.requests import to_log_event
from harnesses.irc.session.handlers import MAX_LINES, MAX_OPEN
from storage.chat_log.event import Place
from tests.kit.irc_session import IN_CHANNEL, Story, inside

NAMES = "batch draft/multiline message-tags server-time"
ALICE = ":alice!a@h"
LINE = f"@batch=1 {ALICE} PRIVMSG #c"
MORE = f"@batch=1;draft/multiline-concat {ALICE} PRIVMSG #c"


def several(*lines: str, tags: str = "msgid=m1", target: str = "#c") -> list[str]:
    return [f"@{tags} {ALICE} BATCH +1 draft/multiline {target}", *lines, ":s BATCH -1"]


def logged(event: IrcEvent) -> list[str]:
    return [
        line.text
        for line in split_lines(to_log_event(event, Place(event.network, event.channel or "")))
    ]


def test_it_is_asked_for_where_it_is_offered_with_what_it_needs() -> None:
    story = Story()
    assert story.reply(
        "CAP * LS :batch draft/multiline=max-bytes=4096,max-lines=24 message-tags"
    ) == ["CAP REQ :batch draft/multiline message-tags"]
    alone = Story()
    alone.feed("CAP * LS :draft/multiline=max-bytes=4096 batch")
    assert alone.sent() == ["CAP REQ batch"]


def test_a_question_of_several_lines_is_one_and_each_line_is_logged() -> None:
    lines = [f"{LINE} :.terrarium why", f"{LINE} :", f"{LINE} :  does", f"{MORE} :  this hold?"]
    tags = "msgid=m1;time=2026-01-01T11:59:58.000Z;account=ally"
    story = Story()
    story.feed("CAP * LS :account-tag", "CAP * ACK :account-tag", *IN_CHANNEL)
    (event,) = story.feed(*several(*lines, tags=tags))
    assert event.text == ".terrarium why\n\n  does  this hold?"
    assert logged(event) == [".terrarium why", "", "  does  this hold?"]
    assert (event.type, event.nick, event.host, event.channel) == ("PRIVMSG", "alice", "h", "#c")
    assert (event.msgid, event.account, event.batch_type) == ("m1", "ally", None)
    assert event.time == datetime(2026, 1, 1, 11, 59, 58, tzinfo=UTC)


def test_nothing_happens_before_the_last_line_and_others_may_speak_in_between() -> None:
    story = inside()
    begin, end = several()
    assert story.feed(begin, f"{LINE} :one") == []
    assert [e.text for e in story.feed(":bob!b@h PRIVMSG #c :between")] == ["between"]
    assert [e.text for e in story.feed(f"{LINE} :two", end)] == ["one\ntwo"]
    assert story.feed(end) == []


def test_a_private_one_and_a_notice_are_what_they_are() -> None:
    story = inside()
    line = f"@batch=1 {ALICE} PRIVMSG Terra"
    (asked,) = story.feed(*several(f"{line} :a", f"{line} :b", target="Terra"))
    assert (asked.channel, asked.target, asked.text) == (None, "Terra", "a\nb")
    notice = f"@batch=1 {ALICE} NOTICE #c"
    (told,) = story.feed(*several(f"{notice} :a", f"{notice} :b", tags="msgid=m2"))
    assert (told.type, told.text) == ("NOTICE", "a\nb")


def test_one_from_the_past_is_not_taken_for_new() -> None:
    story = inside()
    story.feed(":s BATCH +9 chathistory #c")
    assert story.feed(*several(f"{LINE} :.terrarium", f"{LINE} :y", tags="batch=9;msgid=m3")) == []
    story.feed("@batch=9 :s BATCH +8 other")  # a batch of any kind within the past is of the past
    assert story.feed(f"@batch=8 {ALICE} PRIVMSG #c :.terrarium again") == []
    story.feed(":s BATCH -9")
    assert len(story.feed(*several(f"{LINE} :x", f"{LINE} :y", tags="msgid=m4"))) == 1


def test_of_too_many_lines_or_characters_the_rest_is_logged_but_asks_nothing() -> None:
    lines = [f"{LINE} :.terrarium {number}" for number in range(MAX_LINES + 2)]
    whole, *rest = inside().feed(*several(*lines))
    assert len(logged(whole)) == MAX_LINES
    assert [(event.text, event.batch_type) for event in rest] == [
        (f".terrarium {MAX_LINES}", "draft/multiline"),
        (f".terrarium {MAX_LINES + 1}", "draft/multiline"),
    ]
    events = inside().feed(*several(*[f"{LINE} :{'x' * 8000}"] * 20))
    assert sum(len(line) for event in events for line in logged(event)) == 160_000
    assert len(events[0].text) < 80_000


def test_messages_that_never_end_take_no_room_for_ever() -> None:
    story = inside()
    for number in range(MAX_OPEN + 5):
        story.feed(f"{ALICE} BATCH +{number} draft/multiline #c")
    heard = story.feed(*(f"@batch={n} {ALICE} PRIVMSG #c :x" for n in range(MAX_OPEN + 5)))
    assert [event.batch_type for event in heard] == ["draft/multiline"] * 5


@pytest.mark.parametrize(
    "odd",
    [
        "@batch=1 :bob!b@h PRIVMSG #c :x",
        f"@batch=1 {ALICE} PRIVMSG #d :x",
        f"@batch=1 {ALICE} NOTICE #c :x",
        f"@batch=1 {ALICE} PRIVMSG #c :\x01ACTION x\x01",
    ],
)
def test_a_line_that_does_not_belong_to_the_others_is_not_made_theirs(odd: str) -> None:
    first, second = inside().feed(*several(f"{LINE} :a", odd, f"{LINE} :b"))
    assert (first.text, first.batch_type) == ("x", "draft/multiline")
    assert (second.nick, second.text) == ("alice", "a\nb")


TEXTS = st.lists(st.tuples(st.booleans(), st.text("ab ", max_size=9)), min_size=1, max_size=30)


@given(TEXTS)
def test_what_was_said_is_put_together_without_loss(parts: list[tuple[bool, str]]) -> None:
    lines = [f"{MORE if joined else LINE} :{text}" for joined, text in parts]
    expected = parts[0][1] + "".join(("" if j else "\n") + text for j, text in parts[1:])
    heard = inside().feed(*several(*lines))
    assert "\n".join(line for event in heard for line in logged(event)) == expected
