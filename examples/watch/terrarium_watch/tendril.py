"""Tendril that watches web addresses, disks and processes, and says when one changes its state."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
import psutil
from pydantic import Field

from terrarium import Settings, Tendril, tool

LONGEST_WAIT = 20.0  # seconds for an address
GIGABYTE = 1_000_000_000


class WatchSettings(Settings):
    """The table [watch] of terrarium.toml."""

    table = "watch"

    urls: dict[str, str] = Field(default_factory=dict, description="web addresses, by name")
    disks: dict[str, Path] = Field(
        default_factory=lambda: {"disk": Path("/")}, description="folders on disks, by name"
    )
    processes: dict[str, str] = Field(
        default_factory=dict, description="names of programs, or words of command lines, by name"
    )
    free: float = Field(10, ge=0, le=100, description="per cent of a disk that should be free")
    channel: str = Field("#terrarium", description="where to say what has changed")
    tendril: str = Field("irc", description="the tendril that says it")
    every: float = Field(5, gt=0, description="minutes between looks")


@dataclass(frozen=True, slots=True)
class State:
    """The state of something that is watched, in words for people."""

    name: str
    is_well: bool
    text: str


class WatchTendril(Tendril):
    """Looks at everything in turn, and says what has failed and what works again."""

    name = "watch"
    asked_about = "whether disks are full, and whether web addresses and processes are up"

    async def serve(self) -> None:
        self.settings = self.config.section(WatchSettings)
        # How often each has changed, so that a restart says nothing twice: an odd number is a
        # problem that was told.
        self.path = self.config.data / "watch.json"
        self.told: dict[str, int] = json.loads(self.path.read_text()) if self.path.exists() else {}
        async with httpx2.AsyncClient(timeout=LONGEST_WAIT, follow_redirects=True) as self.http:
            self.status.ready(f"watching for {self.settings.channel}")
            while True:
                for state in await self.look():
                    if self.told.get(state.name, 0) % 2 == state.is_well:
                        await self.tell(state)
                await asyncio.sleep(60 * self.settings.every)

    async def look(self) -> list[State]:
        """Return the present state of all that is watched."""
        urls = (self.address(name, url) for name, url in self.settings.urls.items())
        local = await asyncio.to_thread(lambda: [*self.disks(), *self.processes()])
        return [*await asyncio.gather(*urls), *local]

    async def tell(self, state: State) -> None:
        """Say that something has failed or works again, and store that it was said."""
        settings = self.settings
        text = f"{state.name} {'is well again' if state.is_well else 'has a problem'}: {state.text}"
        # The key makes this idempotent, should a crash come before the number is stored.
        changes = self.told.get(state.name, 0) + 1
        key = f"{state.name} {changes}"
        await self.outbox.say(settings.tendril, settings.channel, text, key=key)
        self.told[state.name] = changes
        written = self.path.with_suffix(".tmp")
        written.write_text(json.dumps(self.told))
        written.replace(self.path)

    async def address(self, name: str, url: str) -> State:
        """Return whether an address answers without an error."""
        try:
            async with self.http.stream("GET", url) as answer:
                return State(name, answer.is_success, f"it answers {answer.status_code}")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return State(name, False, f"no answer ({type(error).__name__})")

    def disks(self) -> Iterator[State]:
        """Yield the state of each disk."""
        for name, folder in self.settings.disks.items():
            try:
                usage = shutil.disk_usage(folder)
            except OSError as error:
                yield State(name, False, f"{folder} cannot be read: {error.strerror}")
                continue
            share = 100 * usage.free / usage.total
            text = f"{share:.0f} % free, {usage.free / GIGABYTE:,.1f} GB"
            yield State(name, share >= self.settings.free, text)

    def processes(self) -> Iterator[State]:
        """Yield the state of each process."""
        found = (each.info for each in psutil.process_iter(["name", "cmdline"]))
        lines = [" ".join([each["name"] or "", *(each["cmdline"] or ())]) for each in found]
        for name, words in self.settings.processes.items():
            count = sum(words in line for line in lines)
            yield State(name, count > 0, f"{count} running" if count else "it does not run")

    @tool(reads=True)
    async def watched(self, name: str = "") -> list[dict[str, object]]:
        """Look now at the web addresses, disks and processes that are watched, or at one by its
        name."""
        return [asdict(state) for state in await self.look() if name in ("", state.name)]
