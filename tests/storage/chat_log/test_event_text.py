"""Events as lines of text."""

from __future__ import annotations

import pytest

from storage.chat_log.event import Event, EventType, describe_event, event_line
from tests.kit.lines import said


def of(type: EventType, text: str = "", target: str = "") -> Event:
    return said(text, type=type, target=target)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (of(EventType.PRIVMSG, "hello"), "<ada> hello"),
        (of(EventType.NOTICE, "hello"), "-ada- hello"),
        (of(EventType.ACTION, "waves"), "* ada waves"),
        (of(EventType.JOIN), "*** ada joined"),
        (of(EventType.PART), "*** ada left"),
        (of(EventType.PART, "bye"), "*** ada left (bye)"),
        (of(EventType.QUIT, "Ping timeout"), "*** ada quit (Ping timeout)"),
        (of(EventType.NICK, target="eve"), "*** ada is now known as eve"),
        (of(EventType.KICK, "spam", "bob"), "*** ada kicked bob (spam)"),
        (of(EventType.KICK, target="bob"), "*** ada kicked bob"),
        (of(EventType.MODE, "+o bob"), "*** ada set mode +o bob"),
        (of(EventType.TOPIC, "frogs"), "*** ada set the topic: frogs"),
        (of(EventType.TOPIC), "*** ada cleared the topic"),
    ],
)
def test_every_kind_of_event_is_one_line(event: Event, line: str) -> None:
    assert event_line(event) == line


def test_speech_is_described_by_its_text() -> None:
    assert describe_event(of(EventType.PRIVMSG, "hello")) == "hello"
