"""The health of one process, judged by its status file alone: container health checks run it
often, so it must be cheap."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harnesses.core.tendril.status import STANDBY, ProcessState, report


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check; `text` describes the state or, on failure, what to do."""

    what: str
    ok: bool
    text: str


def examine_process(data: Path, name: str) -> CheckResult:
    """Check one process, active or standby, by its status file."""
    said = report(data, name)
    # A standby on this folder counts as healthy; the active process may be on another machine.
    if not (said and said.is_fresh):
        said = report(data, name + STANDBY) or said
    start = f"start it with `terrarium up` or `terrarium run {name}`"
    if said is None:
        return CheckResult(name, False, f"it has never run in {data}; {start}")
    if said.state is ProcessState.STOPPED:
        return CheckResult(
            name, False, f"it was stopped at {said.time:%Y-%m-%d %H:%M} UTC; {start}"
        )
    if not said.is_fresh:
        return CheckResult(
            name, False, f"it was last seen at {said.time:%Y-%m-%d %H:%M} UTC; {start}"
        )
    if said.trouble:
        return CheckResult(name, False, said.trouble)
    return CheckResult(name, said.state is ProcessState.READY, said.detail or f"it is {said.state}")
