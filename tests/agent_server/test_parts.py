"""The parts of the agent server that need no socket."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.errors import EngineUnavailable
from agent_server.http.responses import sse_event, to_json
from agent_server.settings.models import ModelSettings
from agent_server.settings.server import ServerSettings
from agent_server.tool_calling.emulation import MAX_TEXT_LENGTH, any_of, many_calls, one_call
from storage.usage.usage import TokenUsage
from terrarium.config import Config, ConfigError
from terrarium.http.client import EventData


def tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def test_a_call_schema_limits_free_strings_and_leaves_the_others() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "free": {"type": "string"},
            "short": {"type": "string", "maxLength": 5},
            "day": {"enum": ["mon", "tue"]},
            "list": {"type": "array", "items": {"type": "string"}},
            "type": {"type": "string"},
        },
    }
    arguments = one_call([tool("a", parameters)])["properties"]["arguments"]["properties"]
    assert arguments["free"]["maxLength"] == MAX_TEXT_LENGTH
    assert arguments["short"]["maxLength"] == 5
    assert arguments["day"] == {"enum": ["mon", "tue"]}
    assert arguments["list"]["items"]["maxLength"] == MAX_TEXT_LENGTH
    assert arguments["type"]["maxLength"] == MAX_TEXT_LENGTH


def test_definitions_of_two_tools_with_one_name_stay_apart() -> None:
    def parameters(kind: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/Thing"}},
            "$defs": {"Thing": {"type": kind}},
        }

    tools = [tool("a", parameters("integer")), tool("b", parameters("boolean"))]
    for schema in (one_call(tools), many_calls(tools), any_of(one_call(tools), {"type": "null"})):
        text = json.dumps(schema)
        assert schema["$defs"] == {"a.Thing": {"type": "integer"}, "b.Thing": {"type": "boolean"}}
        assert "#/$defs/a.Thing" in text
        assert "#/$defs/b.Thing" in text


@given(cuts=st.lists(st.integers(min_value=0), max_size=8))
def test_events_are_read_whole_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    wanted = ['{"a": "x\u2028y\x85z"}', '{"message": "broken"}', "[DONE]"]
    raw = f"data: {wanted[0]}\r\n\r\n: ping\n\nerror: {wanted[1]}\r\rdata:[DONE]\n".encode()
    marks = sorted({cut % (len(raw) + 1) for cut in cuts} | {0, len(raw)})
    reader = EventData()
    pieces = [raw[a:b] for a, b in itertools.pairwise(marks)]
    assert [data.decode() for piece in pieces for data in reader.feed(piece)] == wanted


@pytest.mark.parametrize("wrong", [-5, "7", None, 2.5, {}, [1]])
def test_a_usage_that_is_no_count_is_nothing(wrong: Any) -> None:
    details = {"cached_tokens": wrong}
    counts = {"prompt_tokens": wrong, "completion_tokens": wrong}
    assert TokenUsage.from_wire({**counts, "prompt_tokens_details": details}) == TokenUsage()
    assert TokenUsage.from_wire({**counts, "prompt_tokens_details": wrong}) == TokenUsage()


def test_usage_adds_up_over_asks_and_counts_a_shared_prompt_once() -> None:
    one, two = TokenUsage(10, 3, 8), TokenUsage(10, 4, 9)
    assert one + two == TokenUsage(20, 7, 17)
    assert one.merge_choice(two) == TokenUsage(10, 7, 9)
    assert TokenUsage.from_wire(one.as_wire()) == one
    # No more tokens come from the cache than the prompt has.
    for prompt, details, cached in ((1, None, 0), (3, {"cached_tokens": 9}, 3)):
        usage = {"prompt_tokens": prompt, "prompt_tokens_details": details}
        assert TokenUsage.from_wire(usage) == TokenUsage(prompt, 0, cached)


def model(**values: Any) -> ModelSettings:
    return Config({"model": values}, None, Path("data")).section(ModelSettings)


def test_upstreams_are_separated_by_commas_and_lose_their_v1() -> None:
    settings = model(upstream="http://a:1/v1/, https://b")
    assert settings.upstream == ("http://a:1", "https://b")
    assert settings.tool_mode == "native"
    assert model().tool_mode == "forced"
    assert model(path="/models/mine.gguf").tool_mode == "constrained"
    assert model(tools="native").tool_mode == "native"
    empty = model(upstream="", path="")  # as of empty environment variables
    assert (empty.upstream, empty.path) == ((), None)


def server(**values: Any) -> ServerSettings:
    return Config({"server": values}, None, Path("data")).section(ServerSettings)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.com", "::"])
def test_a_host_that_others_reach_needs_a_key(host: str) -> None:
    for keys in ({}, {"admin_key": ""}):
        with pytest.raises(ConfigError, match="SERVER_ADMIN_KEY"):
            server(host=host, **keys).require_key()
    closed = server(host=host, admin_key="frogs-are-awake")
    closed.require_key()
    assert "frogs" not in repr(closed)
    for loopback in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        server(host=loopback).require_key()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"../irc": "secret of irc"}, "letters, digits"),
        ({"admin": "secret of irc"}, "has a meaning already"),
        ({"irc": ""}, "the key of irc is empty"),
        ({"irc": "one secret", "web": "one secret"}, "two keys are the same"),
        ({"irc": "secret of the admin"}, "two keys are the same"),
    ],
)
def test_a_configured_key_has_its_own_name_and_secret(keys: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        server(admin_key="secret of the admin", keys=keys)


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
