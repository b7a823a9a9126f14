"""The header of a GGUF file, read without loading the model.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = b"GGUF"

_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_KEYS = 1_000
_MOST_ITEMS = 1_000_000
_LONGEST = 1 << 20
_CACHE_BYTES = 2
"""Of one number in the cache of keys and values, which has 16-bit floats."""

CONTEXTS = (8192, 4096, 2048)
"""Windows that the embedded engine may get by itself, the best first."""

OVERHEAD = 400_000_000
"""Bytes that the engine takes beside the weights and the cache."""

SHARE = 0.8
"""The most of a machine's memory that a model's process should take."""


class HeaderError(ValueError):
    """The file's header cannot be read."""


@dataclass(frozen=True, slots=True)
class Header:
    """`window` is tokens of training, `per_token` bytes of cache for one token; 0 is unknown."""

    architecture: str
    window: int
    per_token: int


def read_header(path: Path) -> Header:
    """Return what the file says of its model. Raises HeaderError, OSError."""
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise HeaderError("not a GGUF file")
        try:
            facts = dict(_facts(file))
        except (struct.error, UnicodeDecodeError, MemoryError) as error:
            raise HeaderError(f"a broken header: {error}") from error
    kind = str(facts.get("general.architecture", ""))
    return Header(kind, _number(facts.get(f"{kind}.context_length")), _per_token(facts, kind))


def fitting_context(path: Path, slots: int, memory: int) -> int:
    """Return the window, in tokens, with which a model fits into `memory` bytes.

    It is the best of CONTEXTS for every one of `slots` requests at once, and never more than the
    model was trained for. A header that cannot be read counts as one of a small model.
    """
    best = CONTEXTS[0]
    try:
        header, weights = read_header(path), path.stat().st_size
    except (HeaderError, OSError):
        return best
    room = SHARE * memory - weights - OVERHEAD
    fits = [n for n in CONTEXTS if n * slots * header.per_token <= room]
    chosen = fits[0] if fits else CONTEXTS[-1]
    return min(chosen, header.window) if header.window >= 256 else chosen


def _facts(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """The keys and values before those of the tokenizer, which are many and long."""
    _version, _tensors, keys = struct.unpack("<IQQ", file.read(20))
    for _ in range(min(keys, _MOST_KEYS)):
        key = _string(file)
        if key.startswith("tokenizer."):
            return
        yield key, _value(file, _unpack(file, "I"))


def _value(file: BinaryIO, kind: int) -> Any:
    if kind in _NUMBERS:
        return _unpack(file, _NUMBERS[kind])
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        raise HeaderError(f"unknown type {kind}")
    inner, count = _unpack(file, "I"), _unpack(file, "Q")
    if count > _MOST_ITEMS or inner == _ARRAY:
        raise HeaderError("a list that is too long or too deep")
    return [_value(file, inner) for _ in range(count)]


def _string(file: BinaryIO) -> str:
    length = _unpack(file, "Q")
    if length > _LONGEST:
        raise HeaderError("a text that is too long")
    return file.read(length).decode("utf-8")


def _unpack(file: BinaryIO, form: str) -> Any:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]


def _per_token(facts: dict[str, Any], kind: str) -> int:
    """Bytes of cache for a token; layers without attention have no heads for it."""
    layers = _number(facts.get(f"{kind}.block_count"))
    heads = _number(facts.get(f"{kind}.attention.head_count"))
    cached: Any = facts.get(f"{kind}.attention.head_count_kv", heads)
    width = _number(facts.get(f"{kind}.embedding_length"))
    each = width // heads if heads else 0
    keys = _number(facts.get(f"{kind}.attention.key_length")) or each
    values = _number(facts.get(f"{kind}.attention.value_length")) or each
    total = sum(map(_number, cached)) if isinstance(cached, list) else layers * _number(cached)
    return total * (keys + values) * _CACHE_BYTES


def _number(value: Any) -> int:
    if isinstance(value, list):
        value = max((each for each in value if isinstance(each, int)), default=0)
    return value if isinstance(value, int) and value > 0 else 0
