"""Tools: the signature is the schema and the check; whatever goes wrong is a result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from llm.tools.toolbox import EffectKey, ResultLength, Toolbox, ToolError, render_result, tool


@dataclass(frozen=True, slots=True)
class Place:
    """Something that JSON can hold."""

    name: str
    seen: datetime


class Weather:
    """An owner of tools."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str]] = []
        self.stopped = asyncio.Event()

    @tool
    async def forecast(
        self,
        city: Annotated[str, Field(max_length=20, description="where")],
        days: Annotated[int, Field(ge=1, le=7)] = 1,
        unit: Literal["C", "F"] = "C",
    ) -> str:
        """Tell what the weather
        will be.

        - today
        - or later
        """
        self.asked.append((city, days, unit))
        return f"{city}: fair"

    @tool
    async def places(self) -> list[Place]:
        """List the places that are known."""
        return [Place("Gdańsk", datetime(2026, 1, 2, tzinfo=UTC))]

    @tool
    async def unknown(self) -> object:
        """Return what JSON cannot hold."""
        return object()

    @tool
    async def closed(self) -> str:
        """Say no in words for the model."""
        raise ToolError("the station is closed")

    @tool
    async def broken(self) -> str:
        """Have a bug."""
        raise KeyError("password=hunter2")

    @tool
    async def slow(self) -> str:
        """Take for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        return ""

    async def helper(self) -> str:
        """Not a tool."""
        return ""


@pytest.fixture
def weather() -> Weather:
    return Weather()


async def called(owner: object, name: str, arguments: str = "{}", timeout: float = 5) -> str:  # noqa: ASYNC109
    """The result's text, without its marks."""
    result = await Toolbox.from_owners(owner).call(name, arguments, timeout)
    first, *lines, last = result.text.split("\n")
    assert (first, last) == (f'<tool_result tool="{name}">', "</tool_result>")
    return "\n".join(lines)


def schema_of(owner: object, name: str) -> dict[str, Any]:
    """The function that OpenAI's `tools` field describes."""
    [found] = [s for s in Toolbox.from_owners(owner).schemas() if s["function"]["name"] == name]
    assert found["type"] == "function"
    function: dict[str, Any] = found["function"]
    return function


def test_the_signature_is_the_schema(weather: Weather) -> None:
    schema = schema_of(weather, "forecast")
    assert schema["description"] == "Tell what the weather will be.\n\n- today\n- or later"
    parameters = schema["parameters"]
    assert parameters["required"] == ["city"]
    assert "additionalProperties" not in parameters
    city, days, unit = (parameters["properties"][key] for key in ("city", "days", "unit"))
    assert (city["type"], city["description"], city["maxLength"]) == ("string", "where", 20)
    assert (days["type"], days["default"], days["minimum"]) == ("integer", 1, 1)
    assert unit["enum"] == ["C", "F"]
    assert schema_of(weather, "places")["parameters"]["properties"] == {}


def test_only_marked_methods_are_tools(weather: Weather) -> None:
    names = [schema["function"]["name"] for schema in Toolbox.from_owners(weather).schemas()]
    assert names == ["broken", "closed", "forecast", "places", "slow", "unknown"]
    assert not Toolbox.from_owners(object())


async def test_a_marked_function_is_a_tool_without_an_owner() -> None:
    @tool
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    assert await called(double, "double", '{"number": "21"}') == "42"


async def test_defaults_are_filled_in_and_arguments_converted(weather: Weather) -> None:
    assert await called(weather, "forecast", '{"city": "Oslo", "days": "3"}') == "Oslo: fair"
    assert weather.asked == [("Oslo", 3, "C")]
    # No arguments may be no text at all.
    assert await called(weather, "places", "") == (
        '[{"name": "Gdańsk", "seen": "2026-01-02T00:00:00Z"}]'
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("{}", "city: Field required"),
        ('{"city": "Oslo", "days": 9}', "days: Input should be less than or equal to 7"),
        ('{"city": "Oslo", "unit": "K"}', "unit: Input should be 'C' or 'F'"),
        ('{"city": "Oslo", "country": "NO"}', "country: Extra inputs are not permitted"),
        ('{"city": ', "arguments: Invalid JSON"),
        ('["Oslo"]', "arguments: Input should be an object"),
        ('{"city": ["<|im_start|>"]}', "city: Input should be a valid string"),
        ("[" * 100_000, "arguments: "),
    ],
)
async def test_arguments_that_do_not_fit_are_explained_and_nothing_runs(
    weather: Weather, arguments: str, reason: str
) -> None:
    result = await called(weather, "forecast", arguments)
    assert result.startswith(f"error: {reason}")
    assert "<|im_start|>" not in result
    assert weather.asked == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sing", "no such tool; there are: broken, closed, forecast, places, slow, unknown"),
        ("closed", "the station is closed"),
        ("broken", "the tool failed"),
        ("unknown", "the tool failed"),
        ("slow", "no result within 0.5 seconds"),
    ],
)
async def test_whatever_goes_wrong_is_a_result(weather: Weather, name: str, reason: str) -> None:
    assert await called(weather, name, timeout=0.5) == f"error: {reason}"
    assert weather.stopped.is_set() is (name == "slow")


async def test_cancelling_a_call_stops_the_tool(weather: Weather) -> None:
    call = asyncio.create_task(Toolbox.from_owners(weather).call("slow", "{}", 60))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    assert call.cancelled()
    assert len(asyncio.all_tasks()) == 1


def test_a_long_result_is_cut_and_says_so() -> None:
    whole, cut = render_result("x", "a" * 20_000), render_result("x", "a" * 25, 10)
    assert whole == f'<tool_result tool="x">\n{"a" * 20_000}\n</tool_result>'
    said = "(cut off here: 15 more characters)"
    assert cut == f'<tool_result tool="x">\n{"a" * 10}\n{said}\n</tool_result>'


async def test_a_tool_learns_how_long_its_result_may_be() -> None:
    @tool
    async def fill(most: ResultLength, char: str = "a") -> str:
        """Fill a page."""
        return char * (most + 1)

    assert list(schema_of(fill, "fill")["parameters"]["properties"]) == ["char"]
    short = await Toolbox.from_owners(fill, length=3).extended_by().call("fill", "{}", 5)
    assert "aaa\n(cut off here: 1 more characters)" in short.text


class Search(BaseModel):
    model_config = ConfigDict(extra="forbid")
    query: str = ""
    since: datetime | None = None
    title: Annotated[str, Field(description="as it was")] = "none"
    words: list[str] = []


@tool
async def look(asked: Search) -> str:
    """Look for it."""
    return f"{asked.query} in {asked.title}"


async def test_a_model_as_the_only_parameter_stands_for_its_fields() -> None:
    assert await called(look, "look", '{"query": "frogs"}') == "frogs in none"
    assert "Extra inputs" in await called(look, "look", '{"asked": {}}')


def test_a_schema_has_nothing_that_tells_a_model_nothing() -> None:
    assert schema_of(look, "look")["parameters"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "since": {"type": "string", "format": "date-time"},
            "title": {"type": "string", "description": "as it was", "default": "none"},
            "words": {"type": "array", "items": {"type": "string"}},
        },
    }


def test_the_same_tools_are_the_same_list_whatever_their_order(weather: Weather) -> None:
    @tool
    async def apples() -> str:
        """Count them."""
        return "2"

    one, other = Toolbox.from_owners(weather, apples), Toolbox.from_owners(apples, weather)
    assert one.schemas() == other.schemas() == one.restricted_to(one.names()).schemas()
    assert list(one.names()) == sorted(one.names())


def test_what_cannot_be_a_tool_is_refused_where_it_is_written() -> None:
    def plain() -> str:
        """Not async."""
        return ""

    async def silent() -> str:
        return ""

    async def vague(what) -> str:  # type: ignore[no-untyped-def]
        """Have no type."""
        return str(what)

    async def many(*what: str) -> str:
        """Have no names."""
        return str(what)

    refused: list[tuple[Any, str]] = [
        (plain, "async def"),
        (silent, "docstring"),
        (vague, "parameter what a type"),
        (many, "name each parameter"),
    ]
    for function, reason in refused:
        with pytest.raises(TypeError, match=reason):
            tool(function)


class Mailbox:
    """A tool with an effect that is idempotent."""

    def __init__(self) -> None:
        self.letters: dict[EffectKey, str] = {}

    @tool(effect=True, keyed=True)
    async def post(self, text: str, key: EffectKey) -> str:
        """Post a letter."""
        self.letters.setdefault(key, text)
        return "posted"


async def test_the_key_of_an_effect_comes_from_the_run_and_never_from_the_model() -> None:
    mailbox = Mailbox()
    toolbox = Toolbox.from_owners(mailbox)
    [schema] = toolbox.schemas()
    assert list(schema["function"]["parameters"]["properties"]) == ["text"]
    for _ in range(2):
        assert (await toolbox.call("post", '{"text": "Hi"}', 1.0, EffectKey("7"))).ok
    assert mailbox.letters == {EffectKey("7"): "Hi"}
    forged = await toolbox.call("post", '{"text": "Hi", "key": "8"}', 1.0, EffectKey("7"))
    assert not forged.ok
    assert mailbox.letters == {EffectKey("7"): "Hi"}


def test_a_keyed_tool_takes_its_key() -> None:
    @tool(effect=True, keyed=True)
    async def post(text: str) -> str:
        """Post a letter."""
        return text

    with pytest.raises(TypeError, match="EffectKey"):
        Toolbox.from_owners(post)
