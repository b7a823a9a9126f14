"""Translation of engines' errors to those of the API."""

from __future__ import annotations

import json
import re
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
    ToolsRefused,
    Unsupported,
)

log = structlog.get_logger()

TOO_LONG = (
    "exceed_context_size_error",  # llama.cpp
    "context_length_exceeded",  # OpenAI
    "context length",  # vLLM, SGLang, OpenRouter, Mistral, Ollama
    "maximum model length",  # vLLM
    "context window",  # OpenAI
    "context size",  # llama.cpp, older versions
    "number of tokens allowed",  # Gemini
    "context limit",  # Anthropic, when prompt and answer together are too long
    "prompt is too long",  # Anthropic
)
"""Phrases in lower case by which engines report a prompt that is too long."""

TOOLS_UNSUPPORTED = (
    "support tool",  # Ollama: does not support tools; OpenRouter: no endpoints ... support tool use
    "support function calling",
    "tool use not supported",
    "tool use is not supported",
    "tool calling is not supported",  # Groq
    "enable-auto-tool-choice",  # vLLM, started without it
    "requires --jinja",  # llama-server, started without it
)
"""Phrases in lower case by which engines refuse tools."""

_WINDOW = re.compile(
    r'(?:context (?:length|size|window)|model length|tokens allowed)(?! by)[^\d"]{0,20}(\d[\d,]*)'
    r"|(\d[\d,]*) maximum|> ?(\d[\d,]*)"
)
"""The window in such a report: "maximum context length is 4096", "32768 maximum context length",
"5000 tokens > 4096 maximum"; but in Ollama's "context length by 99" it is what exceeds the window.
"""

MIN_WINDOW = 256
"""Fewest tokens of a window to believe."""

DETAIL_PATHS = frozenset(["/tokenize", "/props", "/api/show", "/api/ps", "/v1/model/info"])
"""Paths that only some kinds of servers have."""

OPTIONAL_PATHS = DETAIL_PATHS.union(
    ["/v1/models", "/v1/completions", "/v1/embeddings", "/apply-template"]
)
"""Paths that an upstream may lack and still answer chats."""

LONG_FIELDS = {"/v1/completions": "prompt", "/v1/embeddings": "input"}
"""The field to blame for a prompt that is too long, where it is not `messages`."""


def to_api_error(status: int, body: bytes, headers: Mapping[str, str], path: str = "") -> ApiError:
    """Return the API's error for an engine's error response to a request for `path`.

    Messages of engines reach clients only for status 400, 413 and 422, and with a refusal of tools;
    others may reveal internals.
    """
    if status in (404, 405, 501) and path in OPTIONAL_PATHS:
        return Unsupported(f"the engine behind this server has no {path}")
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = {}
    problem = parsed.get("error", parsed) if isinstance(parsed, dict) else {}
    if not isinstance(problem, dict):
        problem = {"message": str(problem)}
    message = str(
        problem.get("message") or problem.get("detail") or f"the engine answered {status}"
    )
    if status not in (401, 403, 429):
        # The whole object: gateways put the message of the engine behind them deep inside.
        said = json.dumps(problem, ensure_ascii=False).casefold().replace("`", "")
        # Gateways change the status of such errors, some even to 500.
        if any(sign in said for sign in TOO_LONG):
            return _too_long(problem, said, status, path)
        if any(sign in said for sign in TOOLS_UNSUPPORTED):
            return ToolsRefused(message, param="tools")
    if status in (400, 413, 422):
        code = problem.get("code")
        param = problem.get("param")
        return InvalidRequest(
            message,
            param=param if isinstance(param, str) else None,
            code=code if isinstance(code, str) else None,
        )
    if status == 402 or b"insufficient_quota" in body:  # OpenRouter; OpenAI, with status 429
        log.warning("engine.fault", status=status, kind="no credit", path=path)
        return EngineMisconfigured("the engine wants to be paid: its account has no credit left")
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
    """Return the API's error for one that an engine sent in a response with status 200."""
    body = json.dumps({"error": problem}).encode()
    told = problem if isinstance(problem, dict) else {}
    code = told.get("code")
    if not isinstance(code, int):
        code = 400 if told.get("type") == "invalid_request_error" else 500
    return to_api_error(code, body, {})


def _too_long(
    problem: Mapping[str, Any], said: str, status: int, path: str
) -> ContextLengthExceeded:
    """Return the error for a report, `said` in lower case, of a prompt that is too long; its limit
    is the window that the report names."""
    text, limit = "the prompt is too long", problem.get("n_ctx")
    if "n_prompt_tokens" in problem and limit is not None:  # llama.cpp
        text = (
            f"the prompt has {problem['n_prompt_tokens']} tokens; this model's context is "
            f"{limit} tokens, the answer included"
        )
    elif status in (400, 413, 422):
        text = str(problem.get("message") or problem.get("detail") or text)
    if not isinstance(limit, int) and (match := _WINDOW.search(said)):
        limit = int(next(filter(None, match.groups())).replace(",", ""))
    is_known = isinstance(limit, int) and limit >= MIN_WINDOW
    field = LONG_FIELDS.get(path, "messages")
    return ContextLengthExceeded(text, param=field, limit=limit if is_known else None)
