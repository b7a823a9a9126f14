"""What is said on the channels of the day besides the questions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from benchmarks import ubuntu
from storage.chat_log.event import Event, EventType

NETWORK, ROOM, GREENHOUSE = "irc", "#terrarium", "#greenhouse"
PEOPLE = ("ada", "bob", "carla", "dieter", "eve")

_LAST_WEEK = """\
carla: who helps with the wifi in the barn on sunday?
marlene: me, and carla; sunday at 14:00, i bring the two old antennas
dieter: who is marlene?
carla: marlene is from the radio club, she built the repeater on the hill"""

_TWO_DAYS_AGO = """\
ada: the transcoder eats 6G since the update, hagen swaps itself to death
dieter: why not just memory.max and be done
ada: because memory.max kills it in mid-stream, and then all viewers are thrown out
eve: and memory.high?
ada: memory.high only throttles it and reclaims, the stream stutters but goes on
bob: how much does it need in peace?
ada: 2.4G over the whole of last night, so 3G leaves it room
carla: and the disk, does it matter for swap?
ada: no swap for it at all: MemorySwapMax=0, the disk is the bottleneck
eve: then we need it as a unit, not from the crontab
dieter: i can do that, but not before thursday
bob: where does it run, hagen or staging?
ada: hagen. staging is too small
carla: agreed
ada: ok: decision: memory.high=3G for the transcoder on hagen, no swap, as a systemd unit
ada: dieter writes the unit, deadline is friday"""

_TODAY = """\
bob: good morning
carla: sorry all, it was me who broke staging: wrong alembic branch, fixed at 9:40
eve: no harm done, nobody was on it
dieter: the pump for the greenhouse costs 236 euro plus 12 euro for the post
ada: three of us share it, right? you, carla and me
dieter: right
bob: the alertmanager woke me at 4 again
eve: route it to #ops and silence it from 23 to 7, that is what we said on the call
bob: then let us decide that: alertmanager to #ops, silent from 23 to 7
ada: yes
carla: the humidity sensors in the greenhouse have flat batteries, two of them
dieter: the temperature correction is wrong too: it must be minus 1.5 degrees, not plus
carla: can somebody remind me of the sensors tomorrow
eve: the grant has its deadline on 18 december by the way
bob: how many words may it have?
eve: 4000 at most, with a summary
ada: i begin with the part about the water
dieter: greenhouse duty is carla this week
carla: and who is next?
eve: bob, then me"""


def past(now: datetime) -> Iterator[Event]:
    """Yield what was said before the day: a month of #ubuntu, if the corpus is there, then the
    channel's own lines of eight and two days ago."""
    try:
        real = ubuntu.lines()[:9_394]
    except ubuntu.NoCorpus as error:
        print(f"  no older lines: {error}")
        real = ()
    begin = now - timedelta(days=40)
    for number, (kind, nick, text) in enumerate(real):
        yield _event(begin + timedelta(minutes=4 * number), nick, text, kind)
    for days, said in ((8, _LAST_WEEK), (2, _TWO_DAYS_AGO)):
        begin = now - timedelta(days=days) + timedelta(hours=1)
        for number, (nick, text) in enumerate(spoken(said)):
            yield _event(begin + timedelta(minutes=number), nick, text)


def today() -> list[tuple[str, str]]:
    """Return nick and text of what is said in the morning, before the first question."""
    return spoken(_TODAY)


def spoken(text: str) -> list[tuple[str, str]]:
    """Return nick and words of lines "nick: words"."""
    pairs = (line.partition(": ") for line in text.splitlines())
    return [(nick, words) for nick, _, words in pairs]


def _event(time: datetime, nick: str, text: str, kind: EventType = EventType.PRIVMSG) -> Event:
    return Event(
        network=NETWORK,
        channel=ROOM,
        type=kind,
        time=time,
        nick=nick,
        user=f"~{nick}",
        host="home.example",
        text=text,
    )
