"""The embedded engine: a child process that is started, watched and restarted."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from agent_server.engine_protocol import Chunks, ModelInfo, TokenCount
from agent_server.engines.cache_salt import add_salt
from agent_server.engines.control_tokens import escape_control_tokens
from agent_server.engines.embeddings import HOW_TO_GET
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.llama_child import CANNOT_LOAD, EngineSpec
from agent_server.engines.openai import HttpEngine
from agent_server.errors import EngineMisconfigured, EngineUnavailable, Unsupported
from agent_server.model_catalogue.machine import Gpu
from terrarium.backoff import Backoff
from terrarium.file_watcher import file_stamp
from terrarium.supervision import end_child

log = structlog.get_logger()

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
"""Seconds before a restart: the pause doubles until a child has lived longer than the longest."""

TRIES = 3
"""Children that may end in a row while they load the file, before it counts as one that cannot be
loaded. Then the next is started when the file has changed, and else once in a while: the machine
may have had too little memory."""

ONCE_IN_A_WHILE, FILE_LOOK = 300.0, 1.0
"""Seconds until such a file is tried again as it is, and between looks whether it has changed."""

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


@dataclass(frozen=True, slots=True)
class ChildExit:
    """The end of a child: its exit status, and whether it had loaded the model before."""

    status: int
    has_loaded: bool

    @property
    def is_of_the_file(self) -> bool:
        """True if the model's file may be what ended it: refused, or too much for llama.cpp, which
        aborts, or for the memory."""
        return not self.has_loaded and (self.status == CANNOT_LOAD or self.status < 0)


class EmbeddedEngine:
    """llama.cpp in a child process, spoken to over HTTP like any other engine.

    While the child is away every request gets EngineUnavailable (503), and EngineMisconfigured if
    the file cannot be loaded.
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
        self._cannot_load = False

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
        if self._http is None and self._cannot_load:
            raise EngineMisconfigured(
                f"the model file {Path(self._spec.path).name} cannot be loaded: it is damaged, not"
                " whole, of a kind that the engine does not know, or too large for this machine;"
                " fetch it again (terrarium model pull NAME --force) or name another (MODEL_PATH,"
                " [model] path)"
            )
        if self._http is None:
            raise EngineUnavailable("the model is being loaded; try again in a moment")
        return self._http

    async def _supervise(self) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, stable=LONGEST_PAUSE)
        refusals = 0
        while True:
            backoff.mark_started()
            stamp = file_stamp(Path(self._spec.path))
            ended = await self._run_child()
            pause = backoff.delay()
            refusals = refusals + 1 if ended.is_of_the_file else 0
            self._cannot_load = refusals >= TRIES
            if self._cannot_load:
                log.error("engine.cannot_load", model=self._spec.path, status=ended.status)
                await _until_changed(Path(self._spec.path), stamp, ONCE_IN_A_WHILE)
            else:
                log.warning("engine.exited", status=ended.status, restart_in=pause)
                await asyncio.sleep(pause)

    async def _run_child(self) -> ChildExit:
        """Run one child from start to end."""
        spec = replace(self._spec, key=secrets.token_urlsafe(32))
        # A session of its own: Ctrl-C at a terminal is for the server, which ends the child.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agent_server.engines.llama_child",
            stdin=PIPE, stdout=PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            begun = await _hand_over(process, spec)
            if begun is None:
                return ChildExit(await process.wait(), has_loaded=False)
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
                return ChildExit(await self._until_ended_or_stuck(process, http), has_loaded=True)
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


async def _until_changed(path: Path, stamp: object, patience: float) -> None:
    """Return when a file is no longer as its `stamp` says, and has been left alone for a moment;
    or after so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while file_stamp(path) == stamp:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(FILE_LOOK)
            while file_stamp(path) != stamp:
                stamp = file_stamp(path)
                await asyncio.sleep(FILE_LOOK)


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
