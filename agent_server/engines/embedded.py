"""The embedded engine: a child process that is started, watched and restarted."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from agent_server.engine_protocol import Chunks, ModelInfo, TokenCount
from agent_server.engines.cache_salt import add_salt
from agent_server.engines.control_tokens import escape_control_tokens
from agent_server.engines.embeddings import HOW_TO_GET
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.llama_child import EngineSpec
from agent_server.engines.openai import HttpEngine
from agent_server.errors import EngineUnavailable, Unsupported
from agent_server.model_catalogue.machine import Gpu
from terrarium.backoff import Backoff
from terrarium.supervision import end_child

log = structlog.get_logger()

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
"""Seconds before a restart: the pause doubles until a child has lived longer than the longest."""

FAREWELL = 1.0
"""Seconds a child has to end by itself before it is killed."""


@dataclass(frozen=True, slots=True)
class Watchdog:
    """The rules by which a child that runs and no longer answers is noticed; tests take others.

    All are seconds. A busy child is asked every `look`, and is to answer in `answer`: its loop does
    between two batches of tokens. After `unready` without an answer the engine is not ready. The
    child is ended after the engine's timeout, or after `abandoned` if a request was given up.
    """

    look: float = 1.0
    answer: float = 2.0
    unready: float = 10.0
    abandoned: float = 30.0


class EmbeddedEngine:
    """llama.cpp in a child process, spoken to over HTTP like any other engine.

    While the child is away every request gets EngineUnavailable (503).
    """

    def __init__(
        self, spec: EngineSpec, *, timeout: float, watchdog: Watchdog | None = None
    ) -> None:
        self._spec = spec
        self._timeout = timeout
        self._watchdog = watchdog or Watchdog()
        self._is_stuck = False
        self._http: HttpEngine | None = None
        self._gpus: tuple[Gpu, ...] = ()

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""
        return self._http is not None and self._http.is_busy

    @property
    def isolates_keys(self) -> bool:
        """True: each prompt begins with the salt of its key."""
        return True

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Keep a child alive for as long as the block runs."""
        async with asyncio.TaskGroup() as tasks:
            keeper = tasks.create_task(self._supervise())
            try:
                yield
            finally:
                keeper.cancel()

    def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer from the child. Raises ApiError."""
        return self._engine().chat(_child_body(body), session)

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens with the child's template and tokenizer."""
        return replace(await self._engine().count(_child_body(body)), limit=self._spec.context)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse: the child is loaded for chats."""
        raise Unsupported(f"this model makes no embeddings; {EMBEDDER} does. {HOW_TO_GET}")

    async def ready(self) -> bool:
        """Return whether the child has loaded the model and answers."""
        return self._http is not None and not self._is_stuck and await self._http.ready()

    async def model_info(self) -> ModelInfo:
        """Ask the child; it is loaded without a projector and cannot see."""
        return replace(
            await self._engine().model_info(),
            vision=False,
            embeddings=False,
            weights=Path(self._spec.path).stem,
            gpus=self._gpus,
            identity=_identity(Path(self._spec.path)),
        )

    def _engine(self) -> HttpEngine:
        if self._http is None:
            raise EngineUnavailable("the model is being loaded; try again in a moment")
        return self._http

    async def _supervise(self) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, stable=LONGEST_PAUSE)
        while True:
            backoff.mark_started()
            status = await self._run_child()
            pause = backoff.delay()
            log.warning("engine.exited", status=status, restart_in=pause)
            await asyncio.sleep(pause)

    async def _run_child(self) -> int:
        """Run one child from start to end; returns its exit status."""
        spec = replace(self._spec, key=secrets.token_urlsafe(32))
        # A session of its own: Ctrl-C at a terminal is for the server, which ends the child.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agent_server.engines.llama_child",
            stdin=PIPE, stdout=PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            begun = await _hand_over(process, spec)
            if begun is None:
                return await process.wait()
            url = str(begun["url"])
            self._gpus = tuple(Gpu(**each) for each in begun["gpus"])
            # llama.cpp closes the socket after a stream, whatever it says of keep-alive.
            http = HttpEngine(
                [url], key=spec.key, model=spec.name, timeout=self._timeout, keep_alive=False
            )
            async with http.lifespan():
                self._http = http
                gpus = [gpu.name for gpu in self._gpus]
                log.info("engine.started", pid=process.pid, model=spec.path, gpus=gpus)
                return await self._until_ended_or_stuck(process, http)
        finally:
            self._http = None
            self._is_stuck = False
            await end_child(process, FAREWELL)

    async def _until_ended_or_stuck(self, process: Process, http: HttpEngine) -> int:
        """Return the exit status of a child; one that no longer answers is ended."""
        ended = asyncio.create_task(_until_ended(process))
        stuck = asyncio.create_task(self._until_stuck(http))
        try:
            await asyncio.wait({ended, stuck}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                log.error("engine.stuck", pid=process.pid)
                await end_child(process, FAREWELL)
            return await ended
        finally:
            for task in (ended, stuck):
                task.cancel()
            await asyncio.wait({ended, stuck})

    async def _until_stuck(self, http: HttpEngine) -> None:
        """Return when the child has not answered for so long that it has to be ended.

        llama.cpp makes the grammar of a request in its main loop, and does not stop for a client
        that has left: then it answers nobody.
        """
        rules, given_up = self._watchdog, http.given_up
        while True:
            await asyncio.sleep(rules.look)
            if not http.is_busy and http.given_up == given_up:
                continue  # nothing to do, and nothing left behind
            before, since = http.given_up, time.monotonic()
            while not await http.responds(rules.answer):
                silent = time.monotonic() - since
                self._is_stuck = silent >= rules.unready
                is_abandoned = http.given_up != given_up
                if silent >= (
                    min(rules.abandoned, self._timeout) if is_abandoned else self._timeout
                ):
                    return
                await asyncio.sleep(rules.look)
            given_up, self._is_stuck = before, False


def _child_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body as the child is to have it: without forged marks, with the salt of its key."""
    return add_salt(escape_control_tokens(body))


def _identity(path: Path) -> str:
    """Return a fingerprint that changes when another model lies under the same name."""
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


async def _hand_over(process: Process, spec: EngineSpec) -> dict[str, Any] | None:
    """Hand over `spec` and read where the child listens and what it computes with; None when it
    ended instead."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(spec.as_line())
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        return None
    async for line in process.stdout:
        # llama.cpp may write lines of its own.
        if line.startswith(b'{"url": '):
            return dict(json.loads(line))
    return None


async def _until_ended(process: Process) -> int:
    """Return the exit status; what llama.cpp still writes must not fill the pipe."""
    assert process.stdout is not None
    while await process.stdout.read(1 << 16):
        pass
    return await process.wait()
