"""Parser for the subset of YAML used in docker-compose.yml.

Block mappings and lists; plain strings, numbers and JSON lists on one line; comments on separate
lines; `&name`, `*name` and `<<: *name`. Anything else is an error.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ENTRY = re.compile(r"(?P<key>[\w.<-]+):(?: +&(?P<anchor>\w+))?(?: +(?P<value>[^&].*))?")
_PLAIN = re.compile(r"[^\s\[\]{}&*!|>'\"%@`#,](?:[^#]|(?<! )#)*|\$\{.*\}")


class PlainYaml:
    """Parser of one document. Raises ValueError with the first line outside the subset."""

    def __init__(self, text: str) -> None:
        lines = (line.rstrip() for line in text.splitlines())
        self._lines = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        self._anchors: dict[str, Any] = {}
        self._at = 0

    def read(self) -> Any:
        """Return the value of the document."""
        value = self._block(0)
        if self._at < len(self._lines):
            raise ValueError(f"not plain: {self._lines[self._at]!r}")
        return value

    def _block(self, indent: int) -> Any:
        return self._list(indent) if self._here(indent).startswith("- ") else self._map(indent)

    def _here(self, indent: int) -> str:
        """Return the next line without its indentation, or "" if that is not `indent`."""
        line = self._lines[self._at] if self._at < len(self._lines) else ""
        depth = len(line) - len(line.lstrip())
        return line.lstrip() if line and depth == indent else ""

    def _map(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while line := self._here(indent):
            match = _ENTRY.fullmatch(line)
            if match is None or match["key"] in found:
                raise ValueError(f"not plain: {line!r}")
            self._at += 1
            value = self._scalar(match["value"]) if match["value"] else self._block(indent + 2)
            if match["anchor"]:
                self._anchors[match["anchor"]] = value
            if match["key"] == "<<":
                found.update(value)
            else:
                found[match["key"]] = value
        return found

    def _list(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while (line := self._here(indent)).startswith("- "):
            if _ENTRY.fullmatch(line[2:]) and not line.startswith('- "'):
                # "- key: value" begins a mapping: parse it as if the dash were indentation.
                self._lines[self._at] = " " * (indent + 2) + line[2:]
                found.append(self._map(indent + 2))
            else:
                self._at += 1
                found.append(self._scalar(line[2:]))
        return found

    def _scalar(self, text: str) -> Any:
        if text.startswith("*"):
            return self._anchors[text[1:]]
        if text[0] in '["' or text.isdigit() or text in ("{}", "true", "false"):
            return json.loads(text)
        if _PLAIN.fullmatch(text) is None:
            raise ValueError(f"not plain: {text!r}")
        return text
