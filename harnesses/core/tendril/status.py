"""Status files: each process reports its state in one small file in `DATA/run`, and renews it.

`terrarium up` waits for these files; `terrarium doctor` and the web pages read them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
from pydantic import BaseModel, ValidationError

from harnesses.core.addresses import table_settings
from llm.messages.errors import ModelError
from storage.db.private_files import make_folder
from terrarium.config import Config
from terrarium.loopback import is_loopback

if TYPE_CHECKING:  # the commands that read the files need no client
    from llm.client.client import AgentClient

_RENEWAL_INTERVAL = 10.0  # seconds between renewals
_ACCESS_CHECK_INTERVAL = 5.0  # seconds
_STALE_AFTER = timedelta(seconds=3 * _RENEWAL_INTERVAL)

STANDBY_SUFFIX = "-standby"
"""Suffix of the report name of a standby process."""

BACKUP_MARK = Path("run", "last-backup")
"""The file in the data folder whose time is that of the last backup."""

_log = structlog.get_logger()


class ProcessState(StrEnum):
    """The state of a process."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    STOPPED = "stopped"


class StatusReport(BaseModel):
    """The contents of a status file.

    `tokens_today` (since midnight UTC) are broken down in `purposes`. `trouble` is a problem that
    only the operator can fix, "" for none. `asked_about` is what other tendrils may ask this one
    about, "" for nothing. `mcp_troubles` holds the reasons why MCP servers are not connected, by
    name, and `mcp_tools` the tools that MCP clients may call (`OfferedTool`, as JSON).
    """

    name: str
    pid: int
    state: ProcessState
    detail: str
    time: datetime
    tokens_today: int = 0
    purposes: dict[str, int] = {}
    trouble: str = ""
    asked_about: str = ""
    mcp_troubles: dict[str, str] = {}
    mcp_tools: list[dict[str, Any]] = []

    @property
    def is_fresh(self) -> bool:
        """True if the report was renewed within the last 30 seconds, so the process is alive."""
        return datetime.now(UTC) - self.time < _STALE_AFTER


class StatusFile:
    """The status file of this process.

    `state` is the last one reported. `became_ready` is set when the process is ready for the first
    time. `disk_trouble` is the reason why the last report could not be written to a new file, "" if
    it could; other writes of this process will fail for the same reason. Each report includes
    `tokens()`, the tokens used since midnight UTC by purpose, `mcp_troubles()` and `mcp_tools`.
    """

    def __init__(self, data: Path, name: str, asked_about: str = "") -> None:
        self._path = data / "run" / f"{name}.json"
        self._name, self.asked_about = name, asked_about
        self.state = ProcessState.STARTING
        self._detail = ""
        self.tokens: Callable[[], dict[str, int]] = dict
        self.mcp_troubles: Callable[[], dict[str, str]] = dict
        self._troubles: dict[str, str] = {}
        self.disk_trouble = ""
        self.mcp_tools: list[dict[str, Any]] = []
        self.became_ready = asyncio.Event()

    def report_trouble(self, text: str, about: str = "") -> None:
        """Report a problem that only the operator can fix, and how to fix it; "" clears it.

        One problem is kept for each topic in `about`; a report shows them all.
        """
        if text != self._troubles.get(about, ""):
            self._troubles[about] = text
            self.report(self.state, self._detail)

    def stand_by(self, detail: str) -> None:
        """Report as a standby from now on, in the file NAME-standby.json."""
        # The active process may run on the same data folder, where it writes NAME.json.
        self._path = self._path.with_name(f"{self._name}{STANDBY_SUFFIX}.json")
        self.report(ProcessState.READY, detail)

    def take_over(self) -> None:
        """Report as the active process from now on, instead of as a standby."""
        self._path.unlink(missing_ok=True)
        self._path = self._path.with_name(f"{self._name}.json")

    def ready(self, detail: str = "") -> None:
        """Report that the process is ready; `detail` is shown to people, such as its address."""
        self.report(ProcessState.READY, detail)
        self.became_ready.set()

    def waiting(self, detail: str) -> None:
        """Report what the process waits for before it is ready."""
        self.report(ProcessState.WAITING, detail)

    async def renew(self) -> None:
        """Write the report again every ten seconds, until cancelled."""
        while True:
            await asyncio.sleep(_RENEWAL_INTERVAL)
            self.report(self.state, self._detail)

    def report(self, state: ProcessState, detail: str = "") -> None:
        """Report a state of the process."""
        self.state, self._detail = state, detail
        tokens = self.tokens()
        report = StatusReport(
            name=self._name,
            pid=os.getpid(),
            state=state,
            detail=detail,
            time=datetime.now(UTC),
            tokens_today=sum(tokens.values()),
            purposes=tokens,
            trouble="; ".join(filter(None, self._troubles.values())),
            asked_about=self.asked_about,
            mcp_troubles=self.mcp_troubles(),
            mcp_tools=self.mcp_tools,
        )
        try:
            self._write(report)
        except OSError as error:  # without its report the process can still do its work
            _log.warning("status.not_written", file=str(self._path), error=str(error))

    def _write(self, report: StatusReport) -> None:
        """Replace the file atomically, so that no reader sees a part of it; on a full disk,
        overwrite it. Raises OSError."""
        make_folder(self._path.parent)
        written = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            written.write_text(report.model_dump_json(), encoding="utf-8")
            written.replace(self._path)
            self.disk_trouble = ""
        except OSError as error:
            self.disk_trouble = f"the disk: {error.strerror or error}"
            trouble = report.trouble or self.disk_trouble
            text = report.model_copy(update={"trouble": trouble}).model_dump_json()
            written.unlink(missing_ok=True)
            # A new file needs free blocks, but the blocks of the old one can be overwritten even on
            # a full disk, so that the problem can be reported. A reader may see a part of it, which
            # `read_report` treats as a missing file.
            with self._path.open("r+", encoding="utf-8") as file:
                file.write(text)
                file.truncate()


class AccessMonitor:
    """Reports in the log and the status file why the agent server refuses us, if only the operator
    can fix it, such as an invalid key."""

    def __init__(self, client: AgentClient, status: StatusFile) -> None:
        self._client, self._status = client, status
        self._last_reported = ""

    async def watch(self, model: str) -> None:
        """Check every five seconds if the server accepts us, until cancelled.

        Requests are sent only until the first success and, later, while there is a problem.
        """
        was_let_in = False
        while True:
            with suppress(ModelError):  # unreachable, or refused: `trouble` has the latter
                if self._client.trouble or not was_let_in:
                    await self._client.card(model)
                    was_let_in = True
            self.report()
            await asyncio.sleep(_ACCESS_CHECK_INTERVAL)

    def report(self) -> None:
        """Report the current problem, or that there is none; each problem is logged once."""
        trouble = self._client.trouble
        if trouble and trouble != self._last_reported:
            _log.error("agent.not_usable", advice=trouble)
        self._last_reported = trouble
        self._status.report_trouble(trouble, "agent server")


def read_report(data: Path, name: str) -> StatusReport | None:
    """Return the last report of the process `name`, None if there is none or it is incomplete."""
    path = data / "run" / f"{name}.json"
    try:
        # Inode, time and size identify a version: the file is replaced, or overwritten in place.
        stat = path.stat()
        return _parse(path, (stat.st_ino, stat.st_mtime_ns, stat.st_size))
    except (OSError, ValidationError):
        return None


@lru_cache(100)
def _parse(path: Path, _version: tuple[int, int, int]) -> StatusReport:
    """Read a status file; each version is parsed once, since every question reads all of them."""
    return StatusReport.model_validate_json(path.read_bytes())


def askable(data: Path) -> dict[str, str]:
    """Return the running tendrils that take questions from others: their subjects, by name."""
    return {
        each.name: each.asked_about
        for each in read_reports(data)
        if each.asked_about and each.is_fresh and each.state is ProcessState.READY
    }


def read_reports(data: Path) -> list[StatusReport]:
    """Return the last report of every process that ever ran on this data folder, by name."""
    names = sorted(path.stem for path in (data / "run").glob("*.json"))
    return [found for name in names if (found := read_report(data, name))]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check; `text` describes the state or, on failure, what to do."""

    what: str
    ok: bool
    text: str


def examine_process(data: Path, name: str) -> CheckResult:
    """Check one process, active or standby, by its status file: container health checks run it
    often, so it must be cheap."""
    said = read_report(data, name)
    # A standby on this folder counts as healthy; the active process may be on another machine.
    if not (said and said.is_fresh):
        said = read_report(data, name + STANDBY_SUFFIX) or said
    start = f"start it with `terrarium up` or `terrarium run {name}`"
    if said is None:
        return CheckResult(name, False, f"it has never run in {data}; {start}")
    if said.state is ProcessState.STOPPED or not said.is_fresh:
        how = "stopped" if said.state is ProcessState.STOPPED else "last seen"
        return CheckResult(name, False, f"it was {how} at {said.time:%Y-%m-%d %H:%M} UTC; {start}")
    if said.trouble:
        return CheckResult(name, False, said.trouble)
    return CheckResult(name, said.state is ProcessState.READY, said.detail or f"it is {said.state}")


def check_mcp_servers(config: Config) -> list[CheckResult]:
    """Check each server of `[mcp.servers]` by the status files of its users. Raises ConfigError."""
    # The other checks of processes, which are run often, need nothing of MCP.
    from llm.mcp.servers import HOW_TO_INSTALL
    from llm.mcp.settings import McpSettings

    servers = config.section(McpSettings).servers
    if servers and find_spec("mcp") is None:
        text = f"[mcp.servers] names {', '.join(servers)}, which needs the extra: {HOW_TO_INSTALL}"
        return [CheckResult("mcp", False, text)]
    found = []
    for name, settings in servers.items():
        reports = [read_report(config.data, tendril) for tendril in settings.tendrils]
        said = [each for each in reports if each and each.is_fresh]
        away = [each for each in said if name in each.mcp_troubles]
        users = ", ".join(each.name for each in said)
        text = f"used by {users}" if users else "no tendril that may use it is running"
        if away:
            text = "; ".join(f"not connected to {e.name}: {e.mcp_troubles[name]}" for e in away)
        found.append(CheckResult(f"mcp {name}", not away, text))
    return found


def web_address(config: Config, *, is_local: bool = True) -> str | None:
    """Return the base URL of the web pages for the people of a tendril, None if there is none.

    It is `[web] public_url` or, without that, the loopback address of the web tendril, if the
    people are on this machine (`is_local`). None while the web tendril is not running.
    """
    web = read_report(config.data, "web")
    if web is None or not web.is_fresh or web.state is not ProcessState.READY:
        return None
    base: str = table_settings(config, "web").get("public_url") or ""
    if not base and is_local:
        base = web.detail if is_loopback(urlsplit(web.detail).hostname or "") else ""
    return base.rstrip("/") or None
