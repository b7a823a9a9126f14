"""The context of one HTTP request: its sender, its conversation, and its usage so far.

`AuthMiddleware` makes it from the headers and puts it into the ASGI scope; endpoints hand it on to
the models, and these to the engines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope

from agent_server.errors import InvalidRequest
from storage.usage.api_keys import Key
from terrarium.usage import TokenUsage

ANYBODY = Key("anonymous")
"""The sender of all requests to a server that has no keys."""

ADMIN = Key("admin", is_own=True)
"""The sender of requests with `[server] admin_key`."""

OURSELVES = Key("terrarium", is_own=True)
"""The sender of the requests with which the server tests and measures its models."""

LONGEST_SESSION = 256
"""Characters of `x-session-id`."""

LONGEST_PSEUDONYM = 64
"""Characters of `x-person` and `x-channel`."""

PRIORITIES = ("interactive", "background")

HEADERS: dict[str, Any] = {
    "parameters": [
        {
            "name": "x-session-id",
            "in": "header",
            "description": "the conversation this request belongs to",
            "schema": {"type": "string", "maxLength": LONGEST_SESSION},
        },
        {
            "name": "x-priority",
            "in": "header",
            "description": "whether a person waits for the answer",
            "schema": {"type": "string", "enum": [*PRIORITIES], "default": PRIORITIES[0]},
        },
        *(
            {
                "name": f"x-{whose}",
                "in": "header",
                "description": f"a pseudonym of the {whose}, for budgets of each {whose}",
                "schema": {"type": "string", "maxLength": LONGEST_PSEUDONYM},
            }
            for whose in ("person", "channel")
        ),
    ]
}
"""The headers that are read here, for the descriptions of endpoints at /openapi.json."""


@dataclass(slots=True)
class RequestContext:
    """The facts of one request, and the counts that grow while it is answered.

    `created` is in seconds since 1970, `began` in those of the monotonic clock; `size` is the
    length of the body in bytes. `attempts` counts how often the engine was asked: twice where an
    answer is made in two parts. `person` and `channel` are pseudonyms, "" where none was given.
    """

    key: Key = ANYBODY
    background: bool = False
    session: str | None = None
    person: str = ""
    channel: str = ""
    size: int = 0
    created: int = field(default_factory=lambda: int(time.time()))
    began: float = field(default_factory=time.monotonic)
    attempts: int = 0
    queue_seconds: float = 0.0
    usage: TokenUsage | None = None

    @classmethod
    def from_headers(cls, owner: Key, headers: Mapping[bytes, bytes]) -> RequestContext:
        """Make the context of a request of `owner`; the only validation of the headers.

        A key's priority is the highest that its requests have; they can only ask for less. Raises
        InvalidRequest.
        """
        session = headers.get(b"x-session-id")
        if session is not None and len(session) > LONGEST_SESSION:
            text = f"x-session-id is longer than {LONGEST_SESSION} characters"
            raise InvalidRequest(text, param="x-session-id")
        priority = headers.get(b"x-priority", b"interactive").decode("latin-1")
        if priority not in PRIORITIES:
            raise InvalidRequest("x-priority is interactive or background", param="x-priority")
        size = headers.get(b"content-length", b"")
        return cls(
            key=owner,
            background="background" in (owner.priority, priority),
            session=None if session is None else session.decode("latin-1"),
            person=_pseudonym(headers, b"x-person"),
            channel=_pseudonym(headers, b"x-channel"),
            size=int(size) if size.isdigit() and len(size) < 16 else 0,
        )

    def log_fields(self) -> dict[str, Any]:
        """Return the fields for the access log. Seconds are rounded to milliseconds."""
        priority = "background" if self.background else "interactive"
        fields: dict[str, Any] = {"tendril": self.key.name, "priority": priority}
        if self.usage is not None:
            fields |= {
                "waited": round(self.queue_seconds, 3),
                "prompt": self.usage.prompt,
                "completion": self.usage.completion,
                "cached": self.usage.cached,
            }
        return fields


def _pseudonym(headers: Mapping[bytes, bytes], name: bytes) -> str:
    """Return the value of a header. Raises InvalidRequest."""
    value = headers.get(name, b"")
    if len(value) > LONGEST_PSEUDONYM:
        header = name.decode()
        text = f"{header} is longer than {LONGEST_PSEUDONYM} characters"
        raise InvalidRequest(text, param=header)
    return value.decode("latin-1")


def request_context(scope: Scope) -> RequestContext:
    """Return the context in the ASGI scope of a request that needs a key."""
    context = scope["request_context"]
    assert isinstance(context, RequestContext)
    return context
