"""The base URLs of one engine: which is asked, which is next, which is left alone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agent_server.engines.answer import Answer
from agent_server.engines.faults import fault
from agent_server.engines.upstream import Upstream
from agent_server.errors import (
    ApiError,
    EngineTimeout,
    EngineUnavailable,
    RateLimited,
    Unsupported,
)
from llm.http.connection import BrokenError, Connection
from llm.http.connections import Connections, UnreachableError

CHECK_DOWN, CHECK_ALL = 1.0, 10.0
"""Seconds between health checks of upstreams that are down, and of all when there are several."""

CHECK_PATIENCE = 5.0
"""Seconds that a health check may take."""

HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Call:
    """One request to whichever upstream answers; `session` keeps a conversation on one."""

    method: str
    path: str
    content: bytes | None = None
    session: str | None = None


class Upstreams:
    """Sends calls, each to the first URL that begins an answer.

    A connection that is refused or breaks, a status of 429 or 5xx, and an empty answer let the
    next URL try, always before the first byte of an answer and never after. A URL that keeps
    failing is left alone until its health check, GET `health`, passes.
    """

    def __init__(
        self,
        urls: Sequence[str],
        headers: Mapping[str, str],
        *,
        timeout: float,
        keep_alive: bool = True,
        health: str = "/v1/models",
    ) -> None:
        own = {**HEADERS, **headers}
        self._pool = tuple(
            Upstream(url, Connections(url, own, patience=timeout, keep_alive=keep_alive))
            for url in urls
        )
        self._timeout = timeout
        self._health = Call("GET", health)
        self._is_running = False
        self._turn = itertools.count()

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return any(each.asking for each in self._pool)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Check the upstreams' health, and close the connections in the end."""
        watching = asyncio.create_task(self._watch())
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False
            watching.cancel()
            await asyncio.wait({watching})
            for each in self._pool:
                await each.connections.close()

    async def open(self, call: Call) -> Answer:
        """Begin an answer; close it in the end. Raises ApiError, the last upstream's own."""
        problem: ApiError = EngineUnavailable("no engine can be reached")
        for upstream in self._order(call.session):
            try:
                return await self._ask(upstream, call)
            except (EngineUnavailable, RateLimited) as error:
                problem = error
        raise problem

    async def healthy(self) -> bool:
        """Whether any upstream passes its health check now."""
        async with asyncio.TaskGroup() as tasks:
            checks = [tasks.create_task(self._check(each)) for each in self._pool]
        return any(check.result() for check in checks)

    async def _ask(self, upstream: Upstream, call: Call) -> Answer:
        upstream.asking += 1
        try:
            connection = await self._begun(upstream, call)
        except BaseException:
            upstream.asking -= 1
            raise
        answer = Answer(connection, upstream, self._timeout)
        await self._require_success(answer, call)
        return answer

    async def _begun(self, upstream: Upstream, call: Call) -> Connection:
        """The connection with the first bytes of the answer's body. Raises ApiError."""
        if not self._is_running:
            raise EngineUnavailable("the engine is not started")
        try:
            return await upstream.connections.ask(call.method, call.path, call.content)
        except UnreachableError as error:
            upstream.failed(str(error), gone=True)
            raise EngineUnavailable("no engine can be reached") from error
        except TimeoutError as error:
            upstream.failed("silent")
            raise EngineTimeout(f"the engine was silent for {self._timeout:g} s") from error
        except BrokenError as error:
            upstream.failed(str(error))
            raise EngineUnavailable("the engine went away before it answered") from error

    async def _require_success(self, answer: Answer, call: Call) -> None:
        if answer.status == 200 and answer.begun:
            answer.upstream.worked()
            return
        body = await answer.whole()
        if answer.status == 200:
            answer.upstream.failed("empty")
            raise EngineUnavailable("the engine gave an empty answer")
        if answer.status >= 500 and answer.status != 501:
            answer.upstream.failed(str(answer.status))
        raise fault(answer.status, body, answer.headers, call.path)

    def _order(self, session: str | None) -> Sequence[Upstream]:
        up = [each for each in self._pool if not each.down]
        if len(up) < 2:
            return up
        if session is not None:
            return sorted(up, key=lambda each: each.rank(session))
        first = next(self._turn) % len(up)
        return sorted(up[first:] + up[:first], key=lambda each: each.asking)

    async def _watch(self) -> None:
        every = round(CHECK_ALL / CHECK_DOWN)
        for turn in itertools.count(1):
            await asyncio.sleep(CHECK_DOWN)
            whole = len(self._pool) > 1 and turn % every == 0
            async with asyncio.TaskGroup() as tasks:
                for each in self._pool:
                    if each.down or whole:
                        tasks.create_task(self._check(each))

    async def _check(self, upstream: Upstream) -> bool:
        """A path that the upstream does not have is an answer too: it lives."""
        try:
            async with asyncio.timeout(CHECK_PATIENCE):
                answer = await self._ask(upstream, self._health)
                await answer.whole()
        except TimeoutError:
            upstream.failed("its health check is silent")
            return False
        except ApiError as error:
            if not isinstance(error, Unsupported):
                return False
        upstream.worked()
        return True
