"""Hours of a real channel, second by second: how often, and for whom, the rule wakes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from llm.attention.attention import COOLDOWN, Attention, Trigger, TriggerKind
from llm.attention.message_features import MessageFeatures
from storage.chat_log.event import Place

PLACE = Place("irc", "#ubuntu")
_FILE = Path(__file__).parents[2] / "data" / "ubuntu-600-lines.txt"
_SAID = re.compile(r"\[(\d\d):(\d\d)\] <([^>]+)> (.*)")


def real_lines() -> list[tuple[datetime, str, str]]:
    """Time, nick and text of each line of the excerpt, three times, as it has but two hours; those
    of a minute come at its beginning."""
    text = _FILE.read_bytes().decode("utf-8", "replace")
    found = [match for line in text.split("\n") if (match := _SAID.match(line))]
    day = datetime(2009, 10, 1, tzinfo=UTC)
    times = [day + timedelta(hours=int(match[1]), minutes=int(match[2])) for match in found]
    return [
        (time + timedelta(hours=3 * number), match[3], match[4])
        for number in range(3)
        for time, match in zip(times, found, strict=True)
    ]


def wakes(attention: Attention, hours: int = 3) -> Iterator[Trigger]:
    """What wakes while the channel talks, and after; a run is at once over."""
    lines, channel = real_lines(), attention.channel(PLACE)
    now, end = lines[0][0], lines[-1][0] + timedelta(hours=hours)
    while now < end:
        while lines and lines[0][0] <= now:
            time, nick, text = lines.pop(0)
            channel.on_message(MessageFeatures.extract(text, nick, time), "terra")
        for trigger in attention.tick(now):
            yield trigger
            attention.finish(trigger)
        now += timedelta(seconds=1)


def test_on_a_busy_channel_it_wakes_for_those_who_asked_and_at_most_twice_an_hour() -> None:
    found = list(wakes(Attention()))
    assert len(found) >= 3
    for one, next_one in pairwise(found):
        assert next_one.time - one.time >= COOLDOWN
    askers = {nick.lower() for _, nick, text in real_lines() if "?" in text}
    assert {trigger.person for trigger in found} <= askers
    assert {trigger.kind for trigger in found} == {TriggerKind.CONTACT}


def test_after_the_talk_there_is_nothing_left_to_look_at() -> None:
    attention = Attention()
    list(wakes(attention))
    assert not attention
