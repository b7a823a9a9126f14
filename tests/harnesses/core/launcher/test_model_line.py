"""The line that tells people what the model that answers can do."""

from __future__ import annotations

import pytest

from harnesses.core.launcher.readiness import describe_model
from llm.client.profile import CapabilitiesPart, ModelCard


def card(**values: object) -> ModelCard:
    return ModelCard.model_validate({"id": "terra", "root": "terra", **values})


BUILT_IN = card(
    weights="SmolLM2-135M-Instruct.Q4_1",
    parameters=134_515_008,
    gpus=[],
    better="small",
    capabilities={"tools": "forced", "chooses_tools": False},
)


def test_the_built_in_model_says_what_it_lacks_and_which_command_helps() -> None:
    assert describe_model(BUILT_IN) == (
        "model SmolLM2-135M-Instruct (135M): short answers and quotes from the log; no tools, "
        "no memory of its own. Better: terrarium model pull small, then MODEL_PATH=small"
    )


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"weights": "Qwen3-4B-Instruct-2507-Q4_K_M", "parameters": 4_022_468_096,
             "gpus": ["CUDA0 (a card)"], "capabilities": {"chooses_tools": True}},
            "model Qwen3-4B-Instruct-2507 (4B): answers, tools, a memory of its own; computed by "
            "CUDA0 (a card).",
        ),
        (
            {"weights": "tiny-1b", "parameters": 10**9, "capabilities": {"chooses_tools": None}},
            "model tiny-1b (1B): answers; whether it uses tools well is being tested.",
        ),
        (
            {"weights": "tiny-1b", "capabilities": {"chooses_tools": False}},
            "model tiny-1b: answers; no tools, no memory of its own.",
        ),
        (
            {"capabilities": {"tools": "native"}},
            "model terra: answers, tools, a memory of its own.",
        ),
    ],
)  # fmt: skip
def test_other_models_say_what_they_can(values: dict[str, object], line: str) -> None:
    assert describe_model(card(**values)) == line


def test_a_server_that_says_only_a_name_is_described_by_it() -> None:
    assert describe_model(ModelCard(id="m", capabilities=CapabilitiesPart())).startswith(
        "model m: "
    )
