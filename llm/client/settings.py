"""The table `[agent]`: the agent server's address, the model, and the limits of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AliasChoices, Field, SecretStr

from llm.scheduling.cron_schedule import ZoneName, parse_zone, system_zone
from storage.queues.unasked import SignalKind
from terrarium.config import Settings


class AgentSettings(Settings):
    """Settings that the turns of all tendrils share."""

    table: ClassVar[str] = "agent"

    api_url: str = Field(
        "http://127.0.0.1:8080",
        description="address of the agent server, or of any server with an OpenAI-compatible API",
    )
    api_key: SecretStr | None = Field(None, description="bearer key that names this tendril")
    personas: dict[str, Path] = Field(
        default_factory=dict,
        description="a Markdown file, by tendril, that takes the place of its persona",
    )
    model: str = Field("terra", description="model or alias to ask for")
    temperature: float = Field(
        0.3,
        ge=0,
        le=2,
        description="0 for the likeliest words; small models ramble when it is high",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="longest answer in tokens, with the model's thoughts; by default without limit,"
        " but 256 for tiny and small models",
    )
    max_context_messages: int = Field(
        300,
        ge=0,
        validation_alias=AliasChoices("max_context_messages", "agent_max_context_messages"),
        description="how many lines that people said the model is shown at least",
    )
    context_share: float = Field(
        0.5,
        gt=0,
        le=0.9,
        description="how much of a capable model's window the lines of the channel and earlier"
        " turns may take",
    )
    timezone: ZoneName | None = Field(
        None,
        description="time zone in which people mean times of day, by its IANA name "
        '("Europe/Vienna"); unset: the system\'s',
    )
    max_iterations: int = Field(12, ge=1, description="model calls in one turn")
    max_tool_calls: int = Field(20, ge=0, description="tool calls in one turn")
    timeout: float = Field(
        300,
        gt=0,
        description="wall time of one turn, in seconds; one call of the model may take 2/5 of it",
    )
    attention: dict[SignalKind, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict,
        description="weights of the kinds of signals (docs/attention.md), by default question = 2"
        " and the others 0: 2 wakes the model alone, 1.5 while half of the day's tokens are left,"
        " 1 together with others",
    )
    research_tokens: int = Field(
        60_000,
        ge=0,
        description="tokens that one research may spend; then it ends with its findings so far",
    )
    trace_days: int = Field(
        14, ge=0, description="how long the traces of turns are kept; 0: the newest 20,000"
    )

    @cached_property
    def zone_name(self) -> str:
        """The IANA name of the zone in which people mean times: `timezone`, or the system's."""
        return self.timezone or system_zone()

    @cached_property
    def zone(self) -> tzinfo:
        """The time zone called `zone_name`."""
        return parse_zone(self.zone_name)

    @property
    def signal_weights(self) -> Mapping[SignalKind, float]:
        """The weight of each kind of signal; 0 for those that are not named."""
        return {"question": 2.0, **self.attention}

    @property
    def server_url(self) -> str:
        """The base URL of the agent server: `api_url` without `/v1`."""
        return self.api_url.rstrip("/").removesuffix("/v1")

    @property
    def key(self) -> str | None:
        """The secret of `api_key`, None if there is none."""
        return self.api_key.get_secret_value() if self.api_key else None
