"""The catalogue of models: complete, consistent, and the best of it for a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_server.engine_protocol import ModelInfo
from agent_server.engines.model_descriptions import size_in
from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.machine import Gpu, Machine
from agent_server.models.capabilities import ModelCapabilities, is_tested
from agent_server.settings.models import ModelConfig
from terrarium.config import Config
from tests.docs.reference import ROOT

GB = 10**9


def test_the_catalogue_reaches_from_small_to_large_and_open_licences_are_the_rule() -> None:
    entries = catalogue.entries()
    assert entries[0].size < 0.4 * GB
    assert entries[-1].size > 4 * GB
    assert [entry.size for entry in entries] == sorted(entry.size for entry in entries)
    assert len({entry.name for entry in entries}) == len({entry.file for entry in entries})
    tiers = [entry for entry in entries if entry.tier]
    assert [entry.tier for entry in tiers] == ["small", "medium", "large"]
    assert all(entry.open_source for entry in tiers)
    for entry in entries:
        assert entry.memory > entry.size
        assert entry.open_source == (entry.licence == "Apache-2.0")
        assert catalogue.is_name(entry.name)


def test_an_entry_is_found_by_its_name_and_by_its_tier() -> None:
    small = catalogue.find("small")
    assert small is not None
    assert catalogue.find(small.name.upper()) == small
    assert catalogue.find("nobody") is None
    assert catalogue.nearest("meduim") == "medium"
    for path in ("model.gguf", "/models/x", "./x", "a/b", "", ".x"):
        assert not catalogue.is_name(path)


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        (Machine(1 * GB, 1), None),
        (Machine(8 * GB, 2), "qwen3-0.6b"),
        (Machine(2 * GB, 2), "lfm2-350m"),
        (Machine(16 * GB, 16), "qwen3-4b"),
        (Machine(64 * GB, 32), "qwen3-8b"),
        (Machine(16 * GB, 4, (Gpu("CUDA0", 12 * GB),)), "qwen3-8b"),
    ],
)
def test_the_best_for_a_machine_fits_and_is_fast_enough(machine: Machine, name: str | None) -> None:
    best = catalogue.best_for(machine)
    assert (best.name if best else None) == name


def test_a_model_is_recommended_only_in_place_of_a_much_smaller_one() -> None:
    assert catalogue.better_than(None) is None
    assert catalogue.better_than(8_000_000_000) is None
    assert catalogue.better_than(4_000_000_000, [Gpu("CUDA0", 80 * GB)]) == "large"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("qwen3:0.6b", 600_000_000),
        ("SmolLM2-135M-Instruct", 135_000_000),
        ("Qwen/Qwen3-4B-Instruct-2507", 4_000_000_000),
        ("mixtral-8x7b", 56_000_000_000),
        ("Qwen3-30B-A3B", 30_000_000_000),
        ("gpt-4o", None),
        ("phi-3-mini-128k", None),
    ],
)
def test_the_size_of_a_model_is_read_from_its_name(name: str, size: int | None) -> None:
    assert size_in(name) == size


def settings(**values: object) -> ModelConfig:
    return Config({"model": values}, None, Path("data")).section(ModelConfig)


SMALL, LARGE, UNKNOWN = ModelInfo(parameters=10**9), ModelInfo(parameters=8 * 10**9), ModelInfo()


@pytest.mark.parametrize(
    ("model", "traits", "tested", "chooses"),
    [
        ({}, SMALL, False, False),  # the built-in one: known to be too small
        ({"path": "/m.gguf"}, SMALL, True, None),
        ({"path": "/m.gguf"}, LARGE, True, None),
        ({"path": "/m.gguf", "chooses_tools": True}, SMALL, False, True),
        ({"upstream": "http://127.0.0.1:1"}, SMALL, True, None),
        ({"upstream": "http://10.0.0.7:1"}, SMALL, True, None),
        ({"upstream": "http://ollama:11434"}, SMALL, True, None),
        ({"upstream": "https://api.example.org"}, SMALL, False, False),
        ({"upstream": "https://api.example.org"}, LARGE, False, True),
        ({"upstream": "https://api.example.org"}, UNKNOWN, False, True),
        ({"upstream": "http://127.0.0.1:1"}, UNKNOWN, False, True),
        ({"upstream": "http://127.0.0.1:1", "tools": "forced"}, LARGE, False, False),
    ],
)
def test_who_chooses_tools_is_known_tested_or_taken_for_granted(
    model: dict[str, object], traits: ModelInfo, tested: bool, chooses: bool | None
) -> None:
    assert is_tested(settings(**model), traits) == tested
    assert ModelCapabilities.from_settings(settings(**model), traits).chooses_tools == chooses
    passed_test = ModelCapabilities.from_settings(
        settings(**model), traits, passed_test=True
    ).chooses_tools
    assert passed_test == (True if tested else chooses)


def test_the_documentation_has_every_entry() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = text[text.index("| name | file |") :].partition("\n\n")[0]
    rows = {row.split("`")[1]: row for row in table.splitlines()[2:]}
    assert list(rows) == [entry.name for entry in catalogue.entries()]
    for entry in catalogue.entries():
        licence = entry.licence if entry.open_source else f"{entry.licence} (not open source)"
        for words in (entry.repository, entry.file, licence, entry.can, f"{entry.window:,}"):
            assert words in rows[entry.name]
        assert (f"(`{entry.tier}`)" in rows[entry.name]) == (entry.tier is not None)
