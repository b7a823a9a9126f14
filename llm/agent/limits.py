"""The limits of a run, by what has triggered it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from llm.client.settings import AgentSettings

Profile = Literal["standard", "command", "job", "asked", "proactive", "event", "thought"]
"""The trigger of a run: a question (`standard`), a command that asks the model for a small thing, a
scheduled job, a question of another tendril (`asked`), and what the bot does unasked: by itself, on
an event, or because of a thought."""

UNASKED: frozenset[Profile] = frozenset({"proactive", "event", "thought"})
"""Profiles of runs that nobody waits for, so that they may end without an answer."""

_ITERATIONS: dict[Profile, float] = {"command": 2 / 3, "job": 5 / 2}  # of a question's
_CALLS: dict[Profile, int] = {"proactive": 8, "event": 4, "thought": 2}  # at most


@dataclass(frozen=True, slots=True)
class RunBudget:
    """The part of its limits that a run may still use: calls of the model (`iterations`) and of
    tools (`calls`), and `seconds` of wall time."""

    iterations: int
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run, with `seconds` of wall time.

    Calls of the model (`iterations`) and of tools (`calls`); of one tool (`uses`, and
    `research_uses` of one that looks things up); `failures` of one tool in a row; `quiet_rounds`
    in a row in which the model only keeps its notes; `messages` to people. A run that `is_unasked`
    may end without an answer.
    """

    iterations: int = 12
    calls: int = 20
    uses: int = 5
    research_uses: int = 15
    failures: int = 3
    quiet_rounds: int = 5
    messages: int = 4
    seconds: float = 300.0
    is_unasked: bool = False

    @classmethod
    def from_settings(cls, settings: AgentSettings, profile: Profile = "standard") -> RunLimits:
        """Derive the limits of a profile from the settings, which are those of a question: a
        command may ask the model two thirds as often, a scheduled job two and a half times."""
        return cls(
            iterations=max(1, round(settings.max_iterations * _ITERATIONS.get(profile, 1))),
            calls=min(settings.max_tool_calls, _CALLS.get(profile, settings.max_tool_calls)),
            seconds=settings.timeout,
            is_unasked=profile in UNASKED,
        )

    def within(self, budget: RunBudget) -> RunLimits:
        """Return the limits of a run that may use no more than `budget`."""
        return replace(
            self,
            iterations=min(self.iterations, budget.iterations),
            calls=min(self.calls, budget.calls),
            seconds=min(self.seconds, budget.seconds),
        )
