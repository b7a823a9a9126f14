"""The state machine of a connection, whatever a server sends it."""

from __future__ import annotations

import itertools
from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import LineBuffer
from harnesses.irc.protocol.multiline import MULTILINE
from tests.kit.irc_session import IN_CHANNEL, Story, inside

COMMANDS = """
    JOIN PART KICK QUIT NICK MODE TOPIC PRIVMSG NOTICE CAP BATCH ACCOUNT CHGHOST PING ERROR 001
    005 353 366 376 396 332 433 432 475 AWAY SETNAME INVITE 417
"""
PARAMS = st.lists(
    st.sampled_from(
        ["", "#c", "Terra", "alice", "*", "LS", "ACK", "-", "\x01", "x y", "+1", "-1", MULTILINE]
    )
)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(COMMANDS.split()), PARAMS), max_size=12))
def test_no_sequence_of_odd_lines_breaks_the_session(
    lines: list[tuple[bool, str, list[str]]],
) -> None:
    story = inside()
    for sourced, command, params in lines:
        line = f"{'@batch=1 :alice!a@h ' if sourced else ''}{command} {' '.join(params)}"
        story.session.wrote(line)
        for event in story.feed(line):
            assert event.time.tzinfo is UTC
    story.outgoing()


SPOKEN = (
    ":é!u@h PRIVMSG #c :héllo 👩‍🚀",
    "@msgid=1 :a!u@h NOTICE #c :x",
    ":alice!a@h PART #c :bye",
)
STREAM = "".join(f"{line}\r\n" for line in (*IN_CHANNEL, *SPOKEN)).encode()
STREAM += b":a!u@h PRIVMSG #c :l\xe4tin\n\0\xff\r\n:alice!a@h JOIN #c\r\n"


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    def heard(pieces: list[bytes]) -> list[IrcEvent]:
        story, buffer = Story(), LineBuffer()
        return [e for piece in pieces for e in story.feed(*buffer.feed(piece))]

    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert heard(pieces) == heard([STREAM])
