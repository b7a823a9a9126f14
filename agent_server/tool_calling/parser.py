"""An incremental parser of the calls in JSON that a model writes."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

_BEGINNING = re.compile(
    r'[\s,\[]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)'
)


class CallReader:
    """Turns `{"name", "arguments"}`, or a list of such, into `tool_calls` deltas piece by piece.

    The text follows the schema of a call, so that arguments are an object.
    """

    def __init__(self) -> None:
        self.count = 0
        self._held = ""
        self._depth = 0
        self._quoted = self._escaped = False

    def feed(self, text: str) -> list[dict[str, Any]]:
        """Return the deltas that `text` brings; the beginning of a call waits until it is whole."""
        self._held += text
        deltas: list[dict[str, Any]] = []
        while delta := self._arguments() if self._depth else self._beginning():
            deltas.append(delta)
        return deltas

    def _beginning(self) -> dict[str, Any] | None:
        match = _BEGINNING.match(self._held.lstrip("}\n\t "))
        if match is None or match.string[match.end()] != "{":
            return None
        self._held = match.string[match.end() :]
        self.count += 1
        self._depth = -1  # the first brace is still to be read
        function = {"name": json.loads(match[1]), "arguments": ""}
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        return {"index": self.count - 1, "id": call_id, "type": "function", "function": function}

    def _arguments(self) -> dict[str, Any] | None:
        """Return as much of the arguments as is there."""
        end = self._end()
        part, self._held = self._held[:end], self._held[end:]
        if not part:
            return None
        return {"index": self.count - 1, "function": {"arguments": part}}

    def _end(self) -> int:
        """Return where the arguments end in what is held; its length when they do not."""
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
