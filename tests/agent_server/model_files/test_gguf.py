"""The header of a GGUF file, and the window that a machine's memory allows."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from agent_server.model_files.gguf import Header, HeaderError, fitting_context, read_header

pytest_plugins = ("tests.kit.engine",)

GB = 10**9


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def fact(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        items = b"".join(struct.pack("<I", item) for item in value)
        return text(key) + struct.pack("<IIQ", 9, 4, len(value)) + items
    return text(key) + struct.pack("<II", 4, value)


def header(path: Path, facts: dict[str, Any]) -> Path:
    body = b"".join(fact(key, value) for key, value in facts.items())
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(facts)) + body)
    return path


def eight(**more: Any) -> dict[str, Any]:
    """What a model of 8 billion parameters says."""
    kind = {
        "block_count": 36,
        "context_length": 40_960,
        "embedding_length": 4096,
        "attention.head_count": 32,
        "attention.head_count_kv": 8,
        "attention.key_length": 128,
        "attention.value_length": 128,
    }
    facts = {f"big.{key}": value for key, value in (kind | more).items()}
    return {"general.architecture": "big", **facts, "tokenizer.ggml.model": "gpt2"}


def test_the_built_in_model_says_what_it_is(model_file: Path) -> None:
    assert read_header(model_file) == Header("llama", 8192, 30 * 3 * (64 + 64) * 2)


def test_layers_without_attention_need_no_cache_and_no_window_exceeds_the_trained_one(
    tmp_path: Path,
) -> None:
    path = header(tmp_path / "m.gguf", eight(**{"attention.head_count_kv": [0, 8, 0, 8]}))
    assert read_header(path).per_token == 2 * 8 * 256 * 2
    path = header(tmp_path / "m.gguf", eight(context_length=1024))
    assert fitting_context(path, 2, 64 * GB) == 1024


@pytest.mark.parametrize(
    ("memory", "context"), [(64 * GB, 8192), (3 * GB, 4096), (2 * GB, 2048), (GB, 2048)]
)
def test_a_window_is_as_large_as_memory_allows(tmp_path: Path, memory: int, context: int) -> None:
    path = header(tmp_path / "m.gguf", eight())
    assert fitting_context(path, 2, memory) == context


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 99),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 4, 1 << 60),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2) + b"\xff\xff",
    ],
)
def test_a_broken_header_is_an_error_and_counts_as_small(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(HeaderError):
        read_header(path)
    assert fitting_context(path, 2, 64 * GB) == 8192
