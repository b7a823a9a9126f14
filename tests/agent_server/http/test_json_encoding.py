"""Answers as bytes."""

from __future__ import annotations

import json
import math

import pytest

from agent_server.errors import EngineUnavailable
from agent_server.http.responses import sse_event, to_json


def test_an_event_has_one_line_of_data_whatever_is_in_it() -> None:
    made = sse_event({"text": "a\n\ndata: b\r\n"}, "delta")
    assert made == b'event: delta\ndata: {"text":"a\\n\\ndata: b\\r\\n"}\n\n'


def test_half_a_character_stays_an_escape_and_whole_ones_are_written_out() -> None:
    assert to_json("\ud83d") == b'"\\ud83d"'
    assert json.loads(to_json("\ud83d")) == "\ud83d"
    assert to_json("é") == '"é"'.encode()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["", "\ud83d"])
def test_a_number_that_json_does_not_know_is_the_engines_fault(number: float, text: str) -> None:
    with pytest.raises(EngineUnavailable):
        to_json({"logprob": number, "text": text})
