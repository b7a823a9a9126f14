"""Parser for the headers of GGUF files; it does not load the model.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = b"GGUF"
"""The first bytes of a GGUF file."""

# The format's numbers of value types, with the `struct` formats of the fixed-size ones.
_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# A broken or hostile header can claim any count or length: these bound what is read for it.
_MAX_KEYS = 1_000
_MAX_ITEMS = 1_000_000
_MAX_TEXT_BYTES = 1 << 20
_CACHE_BYTES = 2
"""Bytes of one number in the KV cache, which holds 16-bit floats."""

CONTEXT_SIZES = (8192, 4096, 2048)
"""Context windows that the embedded engine may choose by itself, in tokens, best first."""

ENGINE_OVERHEAD = 400_000_000
"""Bytes that the engine needs besides the weights and the KV cache."""

PROCESS_MEMORY_SHARE = 0.8
"""Largest share of a machine's memory that a model's process should take."""


class HeaderError(ValueError):
    """The file's header cannot be read."""


@dataclass(frozen=True, slots=True)
class Header:
    """The facts that size a context: `window` is the trained one in tokens, `per_token` the bytes
    of KV cache for each token; 0 is unknown."""

    architecture: str
    window: int
    per_token: int


def read_header(path: Path) -> Header:
    """Parse the header of a GGUF file. Raises HeaderError, OSError."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise HeaderError("not a GGUF file")
        facts: dict[str, Any] = {}
        try:
            _version, _tensors, keys = struct.unpack("<IQQ", file.read(20))
            for _ in range(min(keys, _MAX_KEYS)):
                key = _string(file)
                if key.startswith("tokenizer."):  # from here on they are many and long
                    break
                facts[key] = _value(file, _unpack(file, "I"))
        except (struct.error, UnicodeDecodeError, MemoryError) as error:
            raise HeaderError(f"a broken header: {error}") from error
    kind = str(facts.get("general.architecture", ""))
    layers = _number(facts.get(f"{kind}.block_count"))
    heads = _number(facts.get(f"{kind}.attention.head_count"))
    # With grouped-query attention fewer heads are cached than there are. Hybrid models have a list
    # with one count for each layer, 0 for layers without attention.
    cached: Any = facts.get(f"{kind}.attention.head_count_kv", heads)
    width = _number(facts.get(f"{kind}.embedding_length"))
    each = width // heads if heads else 0
    keys = _number(facts.get(f"{kind}.attention.key_length")) or each
    values = _number(facts.get(f"{kind}.attention.value_length")) or each
    total = sum(map(_number, cached)) if isinstance(cached, list) else layers * _number(cached)
    per_token = total * (keys + values) * _CACHE_BYTES
    return Header(kind, _number(facts.get(f"{kind}.context_length")), per_token)


def fitting_context(path: Path, slots: int, memory: int) -> int:
    """Return the largest context window, in tokens, with which a model fits into `memory` bytes.

    Each of `slots` concurrent requests has a whole window. The result is one of CONTEXT_SIZES (the
    smallest if none fits), but never more than the model was trained for. A model whose header
    cannot be read is taken for a small one.
    """
    best = CONTEXT_SIZES[0]
    try:
        header, weights = read_header(path), path.stat().st_size
    except (HeaderError, OSError):
        return best
    room = PROCESS_MEMORY_SHARE * memory - weights - ENGINE_OVERHEAD
    fits = [n for n in CONTEXT_SIZES if n * slots * header.per_token <= room]
    chosen = fits[0] if fits else CONTEXT_SIZES[-1]
    return min(chosen, header.window) if header.window >= 256 else chosen


def _value(file: BinaryIO, kind: int) -> Any:
    if kind in _NUMBERS:
        return _unpack(file, _NUMBERS[kind])
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        raise HeaderError(f"unknown type {kind}")
    inner, count = _unpack(file, "I"), _unpack(file, "Q")
    if count > _MAX_ITEMS or inner == _ARRAY:
        raise HeaderError("a list that is too long or too deep")
    return [_value(file, inner) for _ in range(count)]


def _string(file: BinaryIO) -> str:
    length = _unpack(file, "Q")
    if length > _MAX_TEXT_BYTES:
        raise HeaderError("a text that is too long")
    return file.read(length).decode("utf-8")


def _unpack(file: BinaryIO, form: str) -> Any:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]


def _number(value: Any) -> int:
    """Return a positive integer, the largest one of a list; 0 for anything else."""
    if isinstance(value, list):
        value = max((each for each in value if isinstance(each, int)), default=0)
    return value if isinstance(value, int) and value > 0 else 0
