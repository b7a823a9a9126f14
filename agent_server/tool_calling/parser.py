"""An incremental parser of tool calls that a model writes as JSON."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

_BEGINNING = re.compile(
    r'[\s,\[]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)'
)


class CallReader:
    """Converts `{"name", "arguments"}`, or a list of them, to `tool_calls` deltas piece by piece.

    The text must follow the schema of a call: `arguments` is an object. Any other text yields
    nothing.
    """

    def __init__(self) -> None:
        self.count = 0
        self._held = ""
        # Levels of open brackets in the arguments: 0 outside of them, -1 before the first.
        self._depth = 0
        self._quoted = self._escaped = False

    def feed(self, text: str) -> list[dict[str, Any]]:
        """Return the deltas that `text` completes; a call begins once its name is complete."""
        self._held += text
        deltas: list[dict[str, Any]] = []
        while delta := self._arguments() if self._depth else self._beginning():
            deltas.append(delta)
        return deltas

    def _beginning(self) -> dict[str, Any] | None:
        # The brace that closes the previous call may be first.
        match = _BEGINNING.match(self._held.lstrip("} \t\r\n"))
        if match is None or match.string[match.end()] != "{":
            return None
        self._held = match.string[match.end() :]
        self.count += 1
        self._depth = -1  # the first brace is still to be read
        function = {"name": json.loads(match[1]), "arguments": ""}
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        return {"index": self.count - 1, "id": call_id, "type": "function", "function": function}

    def _arguments(self) -> dict[str, Any] | None:
        """Return a delta with the arguments held so far, None if there are none."""
        end = self._end()
        part, self._held = self._held[:end], self._held[end:]
        if not part:
            return None
        return {"index": self.count - 1, "function": {"arguments": part}}

    def _end(self) -> int:
        """Return the end of the arguments in the held text; its length if they go on."""
        # Brackets inside strings do not count. The state outlives the call, as a piece may end
        # anywhere, even within an escape.
        for place, letter in enumerate(self._held):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = letter == "\\"
                self._quoted = letter != '"'
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth = max(self._depth, 0) + 1
            elif letter in "}]":
                self._depth -= 1
                if not self._depth:
                    return place + 1
        return len(self._held)
