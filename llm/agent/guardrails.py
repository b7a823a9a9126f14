"""Limits of a run, and the rules that keep it from repeating itself.

The rules are checked before a tool is executed: all calls of one reply are judged in order, and
counted, before the first of them runs.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llm.client.settings import AgentSettings
from llm.messages.message import ToolCall
from llm.tools.toolbox import ToolOptions

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


_SAME = 3  # the proposal of an identical call that is not run
_ROUNDS = 3  # the round of two calls in turn at which the run is ended

Act = Literal["allow", "drop", "steer", "stop"]
Key = tuple[str, str]
"""A call: its tool, and its arguments as `canonical` has them."""


@dataclass(frozen=True, slots=True)
class CallDecision:
    """The decision on a proposed call: it runs (`allow`); it does not, because a budget is used up
    (`drop`) or because something else would help (`steer`); it does not and ends the run (`stop`).
    `words` tell the model why."""

    act: Act = "allow"
    words: str = ""


ALLOW = CallDecision()
_SAME_CALL = CallDecision("steer", "the same call was made before; use its result")
_IN_TURN = CallDecision("stop", "the same two calls were made again and again; answer now")
_ENDED = CallDecision("drop", "the run has been ended; answer with what you have")
_NO_CALLS = CallDecision("drop", "no tool calls are left; answer with what you have")
_NO_MESSAGES = CallDecision("drop", "no more messages to people may be sent; answer instead")
_NO_STEP = CallDecision("steer", "do something before you say how it goes")


class Guardrails:
    """The tool calls of one run so far, and the rules on the next; `options` looks up a tool."""

    def __init__(self, limits: RunLimits, options: Callable[[str], ToolOptions]) -> None:
        self._limits = limits
        self._options = options
        self._left = limits.calls
        self._messages = limits.messages
        self._proposed: Counter[Key] = Counter()
        self._lately: deque[Key] = deque(maxlen=2 * _ROUNDS - 1)
        self._uses: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()  # of each tool since it last worked
        self._quiet = 0  # rounds since the last one with a real tool
        self._stepped = True  # whether something was done since the last message to people
        self._stopped = False

    @property
    def calls_left(self) -> int:
        """The number of tool calls that the run may still make."""
        return max(0, self._left)

    def charge(self, calls: int) -> None:
        """Count tool calls that were made elsewhere on behalf of this run."""
        self._left -= calls

    @property
    def exhausted(self) -> bool:
        """True if the run may call no more tools."""
        quiet = self._quiet >= self._limits.quiet_rounds
        return self._left <= 0 or self._stopped or quiet

    def judge(self, calls: Sequence[ToolCall]) -> list[CallDecision]:
        """Decide on each call of one reply, counted as if the allowed ones had run."""
        verdicts = [self._judge(call) for call in calls]
        self._count_round(call.name for call in calls)
        return verdicts

    def cooldown_reason(self, tool: str) -> str:
        """Return why a tool must not run, as it has failed too often meanwhile; "" if it may."""
        if self._failures[tool] < self._limits.failures:
            return ""
        return f"{tool} has failed {self._limits.failures} times; do without it"

    def record(self, tool: str, *, ok: bool) -> None:
        """Record that a tool has run, and worked or failed."""
        self._failures[tool] = 0 if ok else self._failures[tool] + 1

    def _judge(self, call: ToolCall) -> CallDecision:
        key = (call.name, canonical(call.arguments))
        self._proposed[key] += 1
        self._lately.append(key)
        decision = self._objection(key) or self._budget(call.name)
        if decision is None:
            self._count(call.name)
        elif decision.act == "stop":
            self._stopped = True
        return decision or ALLOW

    def _objection(self, key: Key) -> CallDecision | None:
        """Return the decision against a call of a run that repeats itself."""
        if self._stopped:
            return _ENDED
        if self._in_turn():
            return _IN_TURN
        if self._proposed[key] >= _SAME:
            return _SAME_CALL
        words = self.cooldown_reason(key[0])
        return CallDecision("steer", words) if words else None

    # Two calls alternate when each equals the one before the last: A B A B A.
    def _in_turn(self) -> bool:
        """Return if two calls were made in turn, and the last one begins their third round."""
        lately = list(self._lately)
        if len(lately) < 2 * _ROUNDS - 1:
            return False
        return lately[0] != lately[1] and lately[:-2] == lately[2:]

    def _budget(self, tool: str) -> CallDecision | None:
        """Return the decision against a call whose budget is used up."""
        options, limits = self._options(tool), self._limits
        most = limits.research_uses if options.research else limits.uses
        if self._left <= 0:
            return _NO_CALLS
        if self._uses[tool] >= most:
            return CallDecision("drop", f"{tool} has been used {most} times; do without it")
        if options.speaks and self._messages <= 0:
            return _NO_MESSAGES
        if options.speaks and not self._stepped:
            return _NO_STEP
        return None

    def _count(self, tool: str) -> None:
        options = self._options(tool)
        self._left -= 1
        self._uses[tool] += 1
        if options.speaks:
            self._messages -= 1
            self._stepped = False
        elif not options.quiet:
            self._stepped = True

    def _count_round(self, tools: Iterable[str]) -> None:
        quiet = all(self._options(tool).quiet for tool in tools)
        self._quiet = self._quiet + 1 if quiet else 0


def canonical(arguments: str) -> str:
    """Return arguments in one spelling of the same JSON; unchanged if they are no JSON."""
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
