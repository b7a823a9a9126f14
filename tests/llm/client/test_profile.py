"""The profile follows from the card of a model, and holds what is done differently for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm.client.profile import CAPABLE, SMALL, TINY, CapabilitiesPart, ModelCard, Profile
from llm.reading.reading import Reading

MILLION = 1_000_000
NATIVE = CapabilitiesPart(tools="native", chooses_tools=True)


@pytest.mark.parametrize(
    ("card", "profile"),
    [
        (None, CAPABLE),
        (ModelCard(id="hosted"), CAPABLE),
        (
            ModelCard(
                id="tiny", parameters=135 * MILLION, capabilities=CapabilitiesPart(tools="forced")
            ),
            replace(TINY, offers="none"),
        ),
        (
            ModelCard(id="small", parameters=800 * MILLION, prompt_tokens_per_second=400),
            replace(SMALL, offers="none", context_tokens=600),
        ),
        (ModelCard(id="able", parameters=900 * MILLION, capabilities=NATIVE), SMALL),
        (
            ModelCard(id="4b", parameters=4_000 * MILLION, prompt_tokens_per_second=30),
            replace(CAPABLE, context_tokens=500, result_length=2_500),
        ),
        (
            ModelCard(id="4b", parameters=4_000 * MILLION, capabilities=NATIVE),
            replace(CAPABLE, context_tokens=16_000),
        ),
        (ModelCard(id="70b", parameters=70_000 * MILLION, capabilities=NATIVE), CAPABLE),
        (
            ModelCard(id="gguf", capabilities=CapabilitiesPart(tools="constrained")),
            replace(CAPABLE, filters_output=True),
        ),
        (ModelCard(id="odd", parameters=135 * MILLION, profile="capable"), None),
        (ModelCard(id="unknown", profile="gigantic"), CAPABLE),
    ],
)
def test_the_profile_follows_from_the_card(card: ModelCard | None, profile: Profile | None) -> None:
    found = Profile.from_card(card)
    assert found == profile if profile else found.name == "capable"


def test_the_results_of_tools_take_no_more_than_an_eighth_of_the_window() -> None:
    lengths = {
        window: Profile.from_card(ModelCard(id="x", max_model_len=window)).result_length
        for window in (4_096, 16_384, 131_072)
    }
    assert lengths == {4_096: 2_500, 16_384: 6_144, 131_072: 20_000}
    small = ModelCard(id="x", parameters=500 * MILLION, max_model_len=131_072)
    assert Profile.from_card(small).result_length == SMALL.result_length == 2_500
    medium = ModelCard(id="x", parameters=2_000 * MILLION, max_model_len=131_072)
    assert Profile.from_card(medium).result_length == 12_000  # half of its 8,000 tokens


def test_a_job_gets_all_of_its_material_whatever_the_model() -> None:
    job = replace(TINY, offers="none").for_job()
    assert (job.is_compact, job.context_tokens, job.offers) == (False, None, "none")


def test_only_small_models_are_cut_short() -> None:
    question = Reading("what is a lighthouse?")
    assert CAPABLE.answer_limit(question) is None
    assert SMALL.answer_limit(question) == 2
    assert TINY.answers_shortly
