"""Capabilities of a model: configured, reported by its engine, or measured.

What is configured takes precedence. How well a model chooses tools is tested for GGUF files, and
for small upstreams on this machine or in a private network. A large upstream, or one of unknown
size, is assumed to choose well; a small one hosted elsewhere, where each request may cost money, is
assumed not to. The test has ten questions, of which five need one of three tools and five need
none. Eight right answers pass; a model that always calls a tool, or never does, has five.

The prompt speed is that which llama.cpp reports with ordinary answers: no speed follows from the
time that an upstream takes, which is mostly latency. `MeasurementStore` keeps both results across
restarts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from agent_server.engine_protocol import Chunk, Chunks, ModelInfo
from agent_server.settings.models import ModelConfig, Tools
from terrarium.loopback import is_loopback

log = structlog.get_logger()

LARGE_MODEL_PARAMETERS = 7_000_000_000
"""Number of parameters from which a model with tools is assumed to choose them well."""

ASSUMED_CONTEXT, ASSUMED_EMBEDDED_CONTEXT = 32_768, 8_192
"""Windows in tokens: of an upstream that does not name its own, and of the embedded engine before
it has loaded the model."""


@dataclass(frozen=True, slots=True)
class ModelCapabilities:
    """Capabilities of a model; None is unknown. `context` is in tokens, of prompt and answer of one
    request together."""

    tools: Tools
    context: int
    vision: bool
    reasoning: bool | None
    embeddings: bool | None
    counts_tokens: bool | None
    chooses_tools: bool | None

    @classmethod
    def from_settings(
        cls, settings: ModelConfig, info: ModelInfo, passed_test: bool | None = None
    ) -> ModelCapabilities:
        """Merge the settings with the engine's `info`; the settings take precedence.

        An upstream is assumed to have vision unless one of them denies it. `passed_test` is the
        result of the tool-choice test, None without one.
        """
        mode = settings.tool_mode
        if settings.tools is None and mode == "native" and info.tools is False:
            mode = "constrained"
        assumed = ASSUMED_CONTEXT if settings.urls else ASSUMED_EMBEDDED_CONTEXT
        vision = (settings.vision, info.vision, bool(settings.urls))
        chooses = settings.chooses_tools
        if chooses is None and mode != "forced":
            chooses = passed_test if is_tested(settings, info) else not _is_small(info)
        return cls(
            tools=mode,
            context=settings.context or info.context or assumed,
            vision=next(each for each in vision if each is not None),
            reasoning=info.reasoning if settings.reasoning is None else settings.reasoning,
            embeddings=info.embeddings if settings.embeddings is None else settings.embeddings,
            counts_tokens=info.counts_tokens,
            chooses_tools=bool(chooses) if mode == "forced" else chooses,
        )

    def as_wire(self) -> dict[str, bool | int | str | None]:
        """Return the `capabilities` object of a model card."""
        return {key: value for key, value in asdict(self).items() if key != "context"}


def is_tested(settings: ModelConfig, info: ModelInfo) -> bool:
    """Return whether only a test can tell if a model chooses tools well."""
    if settings.chooses_tools is not None or settings.tool_mode == "forced":
        return False
    return not settings.urls or (_is_small(info) and all(map(is_near, settings.urls)))


def _is_small(info: ModelInfo) -> bool:
    return info.parameters is not None and info.parameters < LARGE_MODEL_PARAMETERS


def is_near(url: str) -> bool:
    """Return whether a server is on this machine or in a private network, so that it is free."""
    host = urlsplit(url).hostname or ""
    # A name without a dot, such as that of a container, is one of the local network.
    if is_loopback(host) or not {".", ":"}.intersection(host.strip(".")):
        return True
    try:
        return ip_address(host).is_private
    except ValueError:
        return False


VERSION = 2
"""Version of the questions; results with another version are not reused."""

PASSING_SHARE = 0.8
MAX_TEST_TOKENS, MAX_TEST_CHARACTERS = 2_048, 200
"""Limit of an answer, in tokens with the thoughts before it, and in characters of its text, of
which the beginning is enough."""

Ask = Callable[[Mapping[str, Any]], Chunks]
"""Sends a body to the model; its chunks are normalised."""


def _tool(name: str, description: str, argument: str, meaning: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TEST_TOOLS = (
    _tool("weather", "The weather of today in a city", "city", "name of the city"),
    _tool("search_log", "Find what people said in this chat before", "words", "words to look for"),
    _tool("calculate", "The exact value of an arithmetic expression", "expression", "as 2*(3+4)"),
)

TEST_CASES: tuple[tuple[str, str | None], ...] = (
    ("What is the weather in Oslo today?", "weather"),
    ("Good morning!", None),
    ("What did Anna say here about the printer last week?", "search_log"),
    ("What is the opposite of hot?", None),
    ("How much is 4817 times 3962?", "calculate"),
    ("Write a short rhyme about the sea.", None),
    ("Do I need an umbrella in Lima today?", "weather"),
    ("Thank you, that is all.", None),
    ("Who mentioned the new router in this chat?", "search_log"),
    ("What is the capital of Japan?", None),
)
"""Questions, each with the tool that it needs, or None."""

TEST_SYSTEM_PROMPT = (
    "You are a helpful assistant in a chat. Use a tool only if the question needs one."
)


async def share_right(ask: Ask) -> float:
    """Return the share of questions for which a model made the right choice. Raises ApiError.

    Stops early once the model cannot pass any more; questions that were not asked count as wrong.
    """
    right = 0
    for asked, (question, wanted) in enumerate(TEST_CASES, 1):
        right += await _chosen_tool(ask, question) == wanted
        # Not even with all remaining answers right could it pass.
        if right + len(TEST_CASES) - asked < PASSING_SHARE * len(TEST_CASES):
            break
    return right / len(TEST_CASES)


async def _chosen_tool(ask: Ask, question: str) -> str | None:
    """Return the name of the tool that the model calls, None if it answers in words."""
    body = {
        "messages": [
            {"role": "system", "content": TEST_SYSTEM_PROMPT},
            {"role": "user", "content": question},
        ],
        "tools": list(TEST_TOOLS),
        "tool_choice": "auto",
        "temperature": 0,
        "max_tokens": MAX_TEST_TOKENS,
    }
    name, text = "", ""
    async with aclosing(ask(body)) as chunks:
        async for chunk in chunks:
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls") or ():
                    if not call.get("index"):  # the first one counts
                        name += (call.get("function") or {}).get("name") or ""
            if len(text) > MAX_TEST_CHARACTERS:
                break
    # Text that looks like a tool call is wrong for every question: it is neither call nor answer.
    return name or ("a call in words" if text.lstrip().startswith(("{", "[", "<tool")) else None)


MIN_MEASURED_TOKENS = 32
"""Fewest uncached prompt tokens of a measurement; below, other delays dominate the time."""

HALF_LIFE_TOKENS = 4_000
"""Half-life of a measurement, in prompt tokens read since."""


class PromptSpeed:
    """Running estimate of the prompt speed: uncached prompt tokens per second."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._is_measured = False

    @property
    def rate(self) -> float | None:
        """Tokens per second; None before the first measurement."""
        return self._tokens / self._seconds if self._seconds > 0 else None

    def note(self, tokens: int, seconds: float) -> None:
        """Add a measurement; one of fewer than `MIN_MEASURED_TOKENS` tokens is ignored."""
        if tokens < MIN_MEASURED_TOKENS or seconds <= 0:
            return
        self._is_measured = True
        # Both sums decay with the tokens read since, as a pause does not change the speed.
        kept = 0.5 ** (tokens / HALF_LIFE_TOKENS)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds

    def seed(self, rate: float) -> None:
        """Assume the rate of an earlier start or of a trial until an answer has been measured.

        Of several rates the fastest counts: a slower one only shows that the machine was busy.
        """
        if not self._is_measured and rate > (self.rate or 0):
            self._tokens, self._seconds = float(MIN_MEASURED_TOKENS), MIN_MEASURED_TOKENS / rate

    def observe(self, chunk: Chunk) -> None:
        """Add the measurement that a chunk of llama.cpp carries (`timings`), if any."""
        if isinstance(timings := chunk.get("timings"), Mapping):
            tokens, milliseconds = timings.get("prompt_n"), timings.get("prompt_ms")
            if isinstance(tokens, int) and isinstance(milliseconds, int | float):
                self.note(tokens, milliseconds / 1_000)


class ModelMeasurements(BaseModel):
    """The measurements of one model; `chooses_tools` is None before the test."""

    model_config = ConfigDict(frozen=True)

    model: str = ""
    chooses_tools: bool | None = None
    share_right: float | None = None
    prompt_tokens_per_second: float | None = None


class MeasurementStore:
    """Store of measurements: a small JSON file for each model, named by a hash of its key."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "models"

    def read(self, key: str) -> ModelMeasurements:
        """Return the measurements of a model; empty ones when the file is missing or broken."""
        try:
            return ModelMeasurements.model_validate_json(self._file(key).read_bytes())
        except (OSError, ValidationError):
            return ModelMeasurements()

    def write(self, key: str, measured: ModelMeasurements) -> None:
        """Write the measurements atomically. A failure is only logged: the next start measures."""
        path = self._file(key)
        written = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(measured.model_dump_json(indent=1) + "\n", encoding="utf-8")
            written.replace(path)
        except OSError as error:
            log.warning("model.not_kept", file=str(path), error=str(error))

    def _file(self, key: str) -> Path:
        return self._folder / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.json"
