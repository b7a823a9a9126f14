"""Parts for tests of a tendril: a scripted model, the running tendril, a clock.

with ScriptedModel() as model:
    model.call("heat", degrees=80).say("It is hot.")
    async with running(KettleTendril(model.config(tmp_path))) as kettle:
        ...
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from terrarium.clock import Clock
from terrarium.config import Config

if TYPE_CHECKING:
    from terrarium import Tendril

    T = TypeVar("T", bound=Tendril)

ANSWER = "Forty-two."
"""The answer of a model that nobody has told what to say."""

_PATIENCE = 60.0  # seconds
_URL = "AGENT_API_URL"


@dataclass(frozen=True, slots=True)
class _Step:
    deltas: tuple[dict[str, Any], ...]
    seconds: float
    end: str = "stop"


class ScriptedModel:
    """A model behind the OpenAI API over real HTTP that does what a test has said, in order, and
    then always gives the same answer.

    `url` is its address within the block, `requests` are the bodies of the requests for chat
    completions. It describes itself as no model, and is taken for one that chooses its tools.
    """

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()
        self.requests: list[dict[str, Any]] = []

    def say(self, text: str, *, thoughts: str = "", seconds: float = 0.0) -> Self:
        """Answer with a text, word by word within so many seconds, after `thoughts`, if any."""
        first = ({"reasoning_content": thoughts},) if thoughts else ()
        words = ({"content": word} for word in re.findall(r"\S+\s*|\s+", text))
        self._steps.append(_Step((*first, *words), seconds))
        return self

    def call(self, tool: str, **arguments: Any) -> Self:
        """Call a tool of the request; its result is in the next one."""
        function = {"name": tool, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call_{tool}", "type": "function", "function": function}
        self._steps.append(_Step(({"tool_calls": [call]},), 0.0, "tool_calls"))
        return self

    def config(self, data: Path, **tables: Mapping[str, Any]) -> Config:
        """Return a configuration with this model, a data folder and further tables."""
        return Config({"agent": {"api_url": self.url}, **tables}, None, data)

    def __enter__(self) -> Self:
        """Serve until the end of the block; AGENT_API_URL, which would win, is unset meanwhile."""
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path != "/v1/chat/completions":
                    self.send_error(404)
                    return
                model.requests.append(json.loads(body))
                step = model._steps.popleft() if model._steps else _Step(({"content": ANSWER},), 0)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for delta, end in (*((each, None) for each in step.deltas), ({}, step.end)):
                    time.sleep(step.seconds / (len(step.deltas) + 1))
                    choice = {"index": 0, "delta": delta, "finish_reason": end}
                    self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

            def do_GET(self) -> None:
                self.send_error(404)

            def do_PUT(self) -> None:
                self.send_error(404)

            def log_message(self, format: str, *arguments: object) -> None:
                """Suppress the access log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._address = os.environ.pop(_URL, None)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._address is not None:
            os.environ[_URL] = self._address


@asynccontextmanager
async def running(tendril: T, *, seconds: float = _PATIENCE) -> AsyncIterator[T]:
    """Run a tendril until the end of the block, which is entered once it is ready. Raises its error
    if it fails, and TimeoutError if it is not ready within so many seconds, or the block has not
    ended so many seconds later. Signals end the test, as they would without the tendril."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    task = asyncio.create_task(tendril.run())
    ready = asyncio.create_task(tendril.status.became_ready.wait())
    loop, awaited = asyncio.get_running_loop(), "did not become ready"
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                for each, handler in handlers.items():
                    if loop.remove_signal_handler(each):
                        signal.signal(each, handler)
                awaited = "ran, but what the test awaits did not come (see the traceback above)"
                limit.reschedule(loop.time() + seconds)
                yield tendril
    except TimeoutError as error:
        if not limit.expired():
            raise
        text = f"{tendril.name} {awaited}, within {seconds:g} seconds"
        raise TimeoutError(text) from error
    finally:
        ready.cancel()
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class ManualClock(Clock):
    """A clock that stands still except for `advance` and `set`, which wake due sleepers."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._sleepers: list[datetime] = []
        self._news = asyncio.Condition()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        """Return the current time as a Unix timestamp."""
        return self._now.timestamp()

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self._now + timedelta(seconds=seconds))

    async def sleep_until(self, time: datetime) -> None:
        """Wait until the clock has been set to `time` or later."""
        if time <= self._now:
            return
        async with self._news:
            self._sleepers.append(time)
            self._news.notify_all()
            try:
                await self._news.wait_for(lambda: self._now >= time)
            finally:
                self._sleepers.remove(time)

    async def set(self, time: datetime) -> None:
        """Set the time and wake sleepers that are due."""
        async with self._news:
            self._now = time
            self._news.notify_all()

    async def advance(self, step: timedelta) -> None:
        """Set the time ahead by `step`."""
        await self.set(self._now + step)

    async def asleep(self, count: int = 1) -> list[datetime]:
        """Wait until `count` sleepers wait for a future time; return these. Raises TimeoutError."""
        await self._wait_for(lambda: len(self._waiting()) >= count, f"{count} sleepers")
        return self._waiting()

    async def asleep_until(self, time: datetime) -> None:
        """Wait until there is a sleeper that waits for `time`. Raises TimeoutError."""
        await self._wait_for(lambda: time in self._sleepers, f"a sleeper until {time}")

    async def _wait_for(self, is_so: Callable[[], bool], awaited: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE), self._news:
                await self._news.wait_for(is_so)
        except TimeoutError as error:
            times = ", ".join(map(str, self._waiting())) or "nobody sleeps"
            raise TimeoutError(f"waited for {awaited}; there are: {times}") from error

    def _waiting(self) -> list[datetime]:
        return sorted(time for time in self._sleepers if time > self._now)
