"""Answers as bytes: JSON, and JSON in server-sent events.

What a model says cannot end an event early: JSON has no bare line break.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

from agent_server.errors import EngineUnavailable

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_json(data: Any) -> bytes:
    """Return `data` as JSON. Raises EngineUnavailable for a number that JSON cannot carry.

    Half of a surrogate pair, which an engine may send when it cuts a character in two, stays
    as the escape it came in: UTF-8 cannot hold it.
    """
    try:
        return _ENCODER.encode(data).encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode()
    except ValueError:
        raise EngineUnavailable("the engine sent a number that JSON cannot carry") from None


def sse_event(data: Any, name: str | None = None) -> bytes:
    """Return one server-sent event; `name` is its type, for APIs that have several."""
    kind = b"event: %s\n" % name.encode() if name else b""
    return b"%sdata: %s\n\n" % (kind, to_json(data))


class JsonBody(JSONResponse):
    """An answer in one piece."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return to_json(content)
