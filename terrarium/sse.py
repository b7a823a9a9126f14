"""The data of server-sent events, out of a stream of bytes.

Only CR and LF end a line (https://html.spec.whatwg.org/multipage/server-sent-events.html): a
general line splitter would cut JSON at U+2028 or U+0085. APIs of models write each event's data
on one line; llama.cpp calls the field `error` when it is one.
"""

from __future__ import annotations

_FIELDS = (b"data:", b"error:")
LONGEST = 4 * 1024 * 1024
"""Bytes of one line: what is longer is no answer of a model."""


class EventTooLong(Exception):
    """A line that does not end."""


class EventData:
    """Takes the stream piece by piece, cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data that the stream has brought with one more piece. Raises EventTooLong."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST:
            raise EventTooLong(f"one event has more than {LONGEST} bytes")
        return [line.partition(b":")[2].strip() for line in lines if line.startswith(_FIELDS)]
