"""The context of one HTTP request: its sender, its conversation, and the meter of its use.

`RequestMiddleware` creates it from the headers and puts it into the ASGI scope; endpoints pass it
to the models, and these to the engines.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent_server.errors import InvalidRequest
from storage.usage.api_keys import Key
from storage.usage.usage import TokenUsage

ANYBODY = Key("anonymous")
"""The sender of requests without a valid key, on a server that needs none."""

ADMIN = Key("admin", is_own=True)
"""The sender of requests with `[server] admin_key`."""

OURSELVES = Key("terrarium", is_own=True)
"""The sender of the requests with which the server tests and measures its models."""

MAX_SESSION_LENGTH = 256
"""Maximum length of `x-session-id`, in characters."""

MAX_PSEUDONYM_LENGTH = 64
"""Maximum length of `x-person` and of `x-channel`, in characters."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

PRIORITIES = ("interactive", "background")


def _header(name: str, description: str, **schema: Any) -> dict[str, Any]:
    described = {"name": name, "in": "header", "description": description}
    return {**described, "schema": {"type": "string", **schema}}


HEADERS: dict[str, Any] = {
    "parameters": [
        _header(
            "x-session-id", "the conversation this request belongs to", maxLength=MAX_SESSION_LENGTH
        ),
        _header(
            "x-priority",
            "whether a person waits for the answer",
            enum=[*PRIORITIES],
            default=PRIORITIES[0],
        ),
        _header(
            "x-cuts-answers", "any value: a client that leaves during the answer had enough of it"
        ),
        *(
            _header(
                f"x-{whose}",
                f"a pseudonym of the {whose}, for budgets of each {whose}",
                maxLength=MAX_PSEUDONYM_LENGTH,
            )
            for whose in ("person", "channel")
        ),
    ]
}
"""OpenAPI description of the headers that are read here, for `/openapi.json`."""


@dataclass(slots=True)
class RequestMeter:
    """The use of one request, as the engines that answer it have counted it.

    An answer may take several calls of engines, of the same or of another model: `is_admitted` is
    set once the quotas have admitted the first, `queue_seconds` is their total wait, and `model` is
    that of the last one that has ended with some `usage` ("" and None before).
    """

    is_admitted: bool = False
    queue_seconds: float = 0.0
    model: str = ""
    usage: TokenUsage | None = None


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The sender and the options of one request, and the `meter` of its use.

    `created` is in seconds since 1970, `began` is a time of the monotonic clock; `size` is the
    length of the body in bytes, 0 if it was not declared. `person` and `channel` are pseudonyms, ""
    where none was given; so is `traceparent`, the client's span (W3C Trace Context).
    """

    key: Key = ANYBODY
    background: bool = False
    session: str | None = None
    person: str = ""
    channel: str = ""
    traceparent: str = ""
    size: int = 0
    created: int = field(default_factory=lambda: int(time.time()))
    began: float = field(default_factory=time.monotonic)
    meter: RequestMeter = field(default_factory=RequestMeter)

    @classmethod
    def from_headers(cls, owner: Key, headers: Mapping[bytes, bytes]) -> RequestContext:
        """Create the context of a request by `owner`; the only validation of these headers.

        A request can lower the priority of its key, but never raise it. Raises InvalidRequest.
        """
        session = headers.get(b"x-session-id")
        if session is not None and len(session) > MAX_SESSION_LENGTH:
            text = f"x-session-id is longer than {MAX_SESSION_LENGTH} characters"
            raise InvalidRequest(text, param="x-session-id")
        priority = headers.get(b"x-priority", b"interactive").decode("latin-1")
        if priority not in PRIORITIES:
            raise InvalidRequest("x-priority is interactive or background", param="x-priority")
        trace = headers.get(b"traceparent", b"").decode("latin-1")
        # The size is only for estimates, so an absurd one counts as unknown.
        size = headers.get(b"content-length", b"")
        return cls(
            key=owner,
            background="background" in (owner.priority, priority),
            session=None if session is None else session.decode("latin-1"),
            person=_pseudonym(headers, b"x-person"),
            channel=_pseudonym(headers, b"x-channel"),
            traceparent=trace if _TRACEPARENT.fullmatch(trace) else "",
            size=int(size) if size.isdigit() and len(size) < 16 else 0,
        )

    @property
    def sees_all(self) -> bool:
        """True if the sender may know what others use: the operator, or all on an open server."""
        return self.key.is_own or self.key == ANYBODY

    @property
    def priority(self) -> str:
        """The priority as clients and metrics name it, one of `PRIORITIES`."""
        return PRIORITIES[self.background]

    def in_session(self, session: str | None) -> RequestContext:
        """Return the context of the same request in a `session`, unless the client named one."""
        return self if self.session or not session else replace(self, session=session)

    def log_fields(self) -> dict[str, Any]:
        """Return the fields for the access log. Seconds are rounded to milliseconds."""
        fields: dict[str, Any] = {"tendril": self.key.name, "priority": self.priority}
        if (used := self.meter.usage) is not None:
            fields |= {
                "waited": round(self.meter.queue_seconds, 3),
                "prompt": used.prompt,
                "completion": used.completion,
                "cached": used.cached,
            }
        return fields


def _pseudonym(headers: Mapping[bytes, bytes], name: bytes) -> str:
    """Return the value of a header, "" if it is absent. Raises InvalidRequest if it is too long."""
    value = headers.get(name, b"")
    if len(value) > MAX_PSEUDONYM_LENGTH:
        header = name.decode()
        text = f"{header} is longer than {MAX_PSEUDONYM_LENGTH} characters"
        raise InvalidRequest(text, param=header)
    return value.decode("latin-1")
