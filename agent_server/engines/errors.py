"""Translation of engines' errors to those of the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import structlog

from agent_server.errors import (
    ApiError,
    ContextLengthExceeded,
    EngineMisconfigured,
    EngineTimeout,
    EngineUnavailable,
    InvalidRequest,
    RateLimited,
    Unsupported,
)

log = structlog.get_logger()

TOO_LONG = (
    "exceed_context_size_error",
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
)
"""Phrases by which llama.cpp, OpenAI, vLLM and Anthropic report a prompt that is too long."""


OPTIONAL = frozenset(
    [
        "/v1/models",
        "/v1/completions",
        "/v1/embeddings",
        "/tokenize",
        "/apply-template",
        "/props",
        "/api/show",
    ]
)
"""Paths that an upstream may lack and still answer chats."""

LONG_FIELDS = {"/v1/completions": "prompt", "/v1/embeddings": "input"}
"""The field to blame for a prompt that is too long, where it is not `messages`."""


def to_api_error(status: int, body: bytes, headers: Mapping[str, str], path: str = "") -> ApiError:
    """Return the API's error for an engine's error response to a request for `path`.

    Messages of engines reach clients only for status 400, 413 and 422; others may reveal internals.
    """
    if status in (404, 405, 501) and path in OPTIONAL:
        return Unsupported(f"the engine behind this server has no {path}")
    problem = _problem(body)
    message = str(problem.get("message") or f"the engine answered {status}")
    if status in (400, 413, 422):
        if any(sign in json.dumps(problem) for sign in TOO_LONG):
            long = LONG_FIELDS.get(path, "messages")
            return ContextLengthExceeded(_length(problem, message), param=long)
        return InvalidRequest(message, param=problem.get("param"))
    if status == 429:
        wait = headers.get("retry-after", "1")
        # The upstream's value becomes a header of our own response.
        wait = wait if wait.isascii() and wait.isprintable() else "1"
        return RateLimited("the engine is busy", headers={"retry-after": wait})
    log.warning("engine.fault", status=status, kind=problem.get("type"), path=path)
    # This concerns our key, not the client's: hence 503 and not 401.
    if status in (401, 403):
        return EngineMisconfigured("the engine refuses this server's key; check MODEL_UPSTREAM_KEY")
    if status in (404, 405):
        return EngineMisconfigured(
            f"the engine has no such address or model (HTTP {status} for {path}); check "
            "MODEL_UPSTREAM, which must be an OpenAI-compatible server, and MODEL_UPSTREAM_MODEL"
        )
    if status in (408, 504):
        return EngineTimeout("the engine took too long")
    return EngineUnavailable(f"the engine failed with status {status}")


def event_to_api_error(problem: Any) -> ApiError:
    """Return the API's error for one that an engine sent in the middle of a stream."""
    body = json.dumps({"error": problem}).encode()
    code = problem.get("code") if isinstance(problem, dict) else None
    return to_api_error(code if isinstance(code, int) else 500, body, {})


def _problem(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    problem = parsed.get("error", parsed) if isinstance(parsed, dict) else {}
    return problem if isinstance(problem, dict) else {"message": str(problem)}


def _length(problem: Mapping[str, Any], message: str) -> str:
    if "n_prompt_tokens" not in problem:
        return message
    return (
        f"the prompt has {problem['n_prompt_tokens']} tokens; this model's context is "
        f"{problem['n_ctx']} tokens, the answer included"
    )
