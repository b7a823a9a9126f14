"""A parser of server-sent events.

Only CR and LF end a line (https://html.spec.whatwg.org/multipage/server-sent-events.html): a
general line splitter would cut JSON at U+2028 or U+0085. APIs of models write each event's data
on one line; llama.cpp calls the field `error` when it is one.
"""

from __future__ import annotations

_FIELDS = (b"data:", b"error:")
LONGEST = 4 * 1024 * 1024
"""Bytes of one line: what is longer is no answer of a model."""


class EventTooLong(Exception):
    """A line is longer than any answer of a model."""


class EventData:
    """Parses a stream that arrives in pieces, cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that `piece` completes. Raises EventTooLong."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST:
            raise EventTooLong(f"one event has more than {LONGEST} bytes")
        return [line.partition(b":")[2].strip() for line in lines if line.startswith(_FIELDS)]
