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

from agent_server.engine_protocol import Chunks, Engine, ModelInfo, TokenCount
from agent_server.engines.llama_child import CANNOT_LOAD, EngineSpec
from agent_server.engines.openai import OpenAIEngine
from agent_server.engines.prompt_guard import add_salt, escape_control_tokens
from agent_server.engines.upstream_pool import UpstreamConfig
from agent_server.errors import EngineMisconfigured, EngineUnavailable
from agent_server.model_catalogue.machine import Gpu
from terrarium.cancellation import run_beside
from terrarium.clock import Backoff
from terrarium.file_watcher import file_stamp
from terrarium.supervision import end_child

log = structlog.get_logger()

FIRST_PAUSE = 0.2
MAX_PAUSE = 5.0
"""Backoff before a restart, in seconds: it doubles from the first pause to the longest, until a
child has lived longer than that."""

MAX_LOAD_ATTEMPTS = 3
"""Consecutive children that may fail to load the model file before it counts as unloadable. From
then on a child is started when the file has changed, or else after `RELOAD_INTERVAL`, as the
machine may only have been short of memory."""

RELOAD_INTERVAL, FILE_POLL_INTERVAL = 300.0, 1.0
"""Seconds until an unchanged unloadable file is tried again, and between checks for a change."""

TERMINATE_TIMEOUT = 1.0
"""Seconds between SIGTERM and SIGKILL for a child."""


@dataclass(frozen=True, slots=True)
class Watchdog:
    """The thresholds, in seconds, for a child that runs but does not respond; tests pass others.

    A busy child is polled every `look` seconds and must respond within `answer`, which its main
    loop does between two batches of tokens. After `unready` without a response the engine is not
    ready. The child is ended after the engine's timeout, or after `abandoned` if a request was
    given up.
    """

    look: float = 1.0
    answer: float = 2.0
    unready: float = 10.0
    abandoned: float = 30.0


class EmbeddedEngine(Engine):
    """llama.cpp in a child process, used over HTTP like any other engine.

    While no child is ready, requests raise EngineUnavailable (503), or EngineMisconfigured if the
    file cannot be loaded.
    """

    isolates_keys = True  # a prompt begins with the salt of its key, or does not use the cache

    def __init__(
        self, spec: EngineSpec, *, timeout: float, watchdog: Watchdog | None = None
    ) -> None:
        self._spec = spec
        self._timeout = timeout
        self._watchdog = watchdog or Watchdog()
        self._is_stuck = False
        self._http: OpenAIEngine | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._cannot_load = False

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Keep a child running for the duration of the block."""
        async with run_beside(self._supervise()):
            yield

    def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer from the child. Raises ApiError."""
        return self._engine().chat(_child_body(body), session)

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens with the child's template and tokenizer."""
        return replace(await self._engine().count(_child_body(body)), limit=self._spec.context)

    async def ready(self) -> bool:
        """Return whether the child has loaded the model and responds."""
        return self._http is not None and not self._is_stuck and await self._http.ready()

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Ask the child, which has one model, and no image projector, so no vision."""
        info, path = await self._engine().model_info(), Path(self._spec.path)
        identity = None
        # The file may have gone since the child loaded it; the model in memory still answers.
        with suppress(OSError):
            status = path.stat()  # noqa: ASYNC240
            identity = f"{path.name} {status.st_size} {status.st_mtime_ns}"
        return replace(
            info,
            vision=False,
            embeddings=False,
            weights=path.stem,
            gpus=self._gpus,
            identity=identity,
        )

    def _engine(self) -> OpenAIEngine:
        if self._http is None and self._cannot_load:
            raise EngineMisconfigured(
                f"the model file {Path(self._spec.path).name} cannot be loaded: it is damaged, not"
                " whole, of a kind that the engine does not know, or too large for this machine;"
                " fetch it again (`terrarium model pull NAME --force`) or name another (MODEL_PATH,"
                " [model] path)"
            )
        if self._http is None:
            raise EngineUnavailable("the model is being loaded; try again in a moment")
        return self._http

    async def _supervise(self) -> None:
        backoff = Backoff(FIRST_PAUSE, MAX_PAUSE, stable=MAX_PAUSE)
        refusals = 0
        while True:
            backoff.mark_started()
            # Before the start, so that a file replaced while it is being loaded counts as changed.
            path = Path(self._spec.path)
            stamp = file_stamp(path)
            status, has_loaded = await self._run_child()
            pause = backoff.delay()
            # Because of the file, as far as one can tell: llama.cpp has rejected it, or a signal (a
            # negative status) has ended the child. llama.cpp aborts on some files, and the kernel
            # may kill a process that needs too much memory.
            is_of_the_file = not has_loaded and (status == CANNOT_LOAD or status < 0)
            refusals = refusals + 1 if is_of_the_file else 0
            self._cannot_load = refusals >= MAX_LOAD_ATTEMPTS
            if self._cannot_load:
                log.error("engine.cannot_load", model=self._spec.path, status=status)
                with suppress(TimeoutError):
                    async with asyncio.timeout(RELOAD_INTERVAL):
                        while file_stamp(path) == stamp:  # noqa: ASYNC110 - a file tells nobody
                            await asyncio.sleep(FILE_POLL_INTERVAL)
                        # It may still be being written.
                        while file_stamp(path) != stamp:
                            stamp = file_stamp(path)
                            await asyncio.sleep(FILE_POLL_INTERVAL)
            else:
                log.warning("engine.exited", status=status, restart_in=pause)
                await asyncio.sleep(pause)

    async def _run_child(self) -> tuple[int, bool]:
        """Run one child from its start to its exit, or until it stops responding.

        Return its exit status, and whether it had loaded the model.
        """
        # A new key for each child, passed through the pipe: the process list does not show it.
        spec = replace(self._spec, key=secrets.token_urlsafe(32))
        # In its own session, Ctrl-C at a terminal reaches only the server, which ends the child.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agent_server.engines.llama_child",
            stdin=PIPE, stdout=PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            begun: dict[str, Any] = {}
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(spec.as_line())
                await process.stdin.drain()
                async for line in process.stdout:
                    # llama.cpp may write lines of its own to standard output.
                    if line.startswith(b'{"url": '):
                        begun = json.loads(line)
                        break
            if not begun:
                return await process.wait(), False
            self._gpus = tuple(Gpu(**each) for each in begun["gpus"])
            # llama.cpp closes the connection after each stream, though it advertises keep-alive.
            http = OpenAIEngine(
                UpstreamConfig([begun["url"]], spec.key, spec.name, self._timeout, keep_alive=False)
            )
            async with http.lifespan():
                self._http = http
                gpus = [gpu.name for gpu in self._gpus]
                log.info("engine.started", pid=process.pid, model=spec.path, gpus=gpus)
                async with run_beside(self._end_if_stuck(process, http)):
                    # The output is drained, as a full pipe would block llama.cpp.
                    while await process.stdout.read(1 << 16):
                        pass
                    return await process.wait(), True
        finally:
            # First of all, so that no further request goes to a child that is being ended.
            self._http = None
            self._is_stuck = False
            await end_child(process, TERMINATE_TIMEOUT)

    async def _end_if_stuck(self, process: Process, http: OpenAIEngine) -> None:
        """End the child once it has not responded for too long.

        llama.cpp compiles the grammar of a request in its main loop, and does not stop when the
        client disconnects: meanwhile it answers nobody.
        """
        rules, aborted_posts = self._watchdog, http.aborted_posts
        while True:
            await asyncio.sleep(rules.look)
            if not http.is_busy and http.aborted_posts == aborted_posts:
                continue  # idle, and no request was given up since it last responded
            before, since = http.aborted_posts, time.monotonic()
            while not await http.responds(rules.answer):
                silent = time.monotonic() - since
                self._is_stuck = silent >= rules.unready
                is_abandoned = http.aborted_posts != aborted_posts
                patience = min(rules.abandoned, self._timeout) if is_abandoned else self._timeout
                if silent >= patience:
                    log.error("engine.stuck", pid=process.pid)
                    await end_child(process, TERMINATE_TIMEOUT)
                    return
                await asyncio.sleep(rules.look)
            aborted_posts, self._is_stuck = before, False


def _child_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body for the child: without control tokens, and with the salt of its key."""
    return add_salt(escape_control_tokens(body))
