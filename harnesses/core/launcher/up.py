"""`terrarium up`: starts and supervises all processes of one machine until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx2

from harnesses.core.addresses import with_agent_address
from harnesses.core.errors import TendrilError
from harnesses.core.launcher.keys import (
    LOCAL,
    end_launch_keys,
    has_own_key,
    make_launch_keys,
)
from harnesses.core.launcher.model_line import model_line
from harnesses.core.launcher.plan import IrcEndpoint, LaunchPlan
from harnesses.core.launcher.ports import require_free
from harnesses.core.launcher.readiness import (
    Check,
    ModelAnswers,
    ask_for_token,
    irc_accepts,
    lets_in,
    server_ready,
    tendril_ready,
    unreachable,
    wait_until_ready,
)
from harnesses.core.launcher.supervisor import (
    EX_CONFIG,
    ChildConfigError,
    Program,
    RestartPolicy,
    Supervisor,
    running,
)
from harnesses.core.up_file import RunningUp, published_up_file
from llm.client.settings import AgentSettings
from storage.db.errors import StorageError
from storage.db.process_lock import hold_lock
from terrarium.config import Config
from terrarium.supervision import root_cause, told_to_stop

Say = Callable[[str], None]

_RESTARTS = RestartPolicy()


async def up(config: Config, say: Say, announce: Say) -> None:
    """Run the processes that `config` asks for until told to stop; all have ended on return.

    `say` receives lines about the progress, `announce` the text for people once all are ready.
    Raises ConfigError, TendrilError and StorageError.
    """
    plan = LaunchPlan.from_config(config)
    with hold_lock(config.data, "up", "terrarium up"):
        require_free(plan.ports)
        async with _with_keys(plan, config) as plan:
            try:
                async with asyncio.TaskGroup() as tasks:
                    serving = tasks.create_task(_run_all(plan, config, say, announce))
                    await told_to_stop()
                    _ignore_more_signals()
                    serving.cancel()
            except ExceptionGroup as group:
                raise root_cause(group) from group


@asynccontextmanager
async def _with_keys(plan: LaunchPlan, config: Config) -> AsyncIterator[LaunchPlan]:
    """Create the launch keys and publish the up file; yield the plan with keys for its tendrils."""
    secrets = await make_launch_keys(config, plan)
    running = RunningUp(
        pid=os.getpid(),
        server=plan.server,
        web=plan.web,
        irc_port=plan.endpoint.port if plan.endpoint and plan.endpoint.embedded else None,
        key=secrets[LOCAL],
    )
    try:
        with published_up_file(config.data, running):
            yield plan.with_keys({} if has_own_key(config, plan) else secrets)
    finally:
        with suppress(StorageError):  # the next start revokes them
            await end_launch_keys(config)


async def _run_all(plan: LaunchPlan, config: Config, say: Say, announce: Say) -> None:
    plan = await _with_model(plan, config, say)
    supervisor = Supervisor(plan.programs, say, _RESTARTS)
    agent = with_agent_address(config).section(AgentSettings)
    async with asyncio.TaskGroup() as tasks, httpx2.AsyncClient(trust_env=False) as http:
        tasks.create_task(supervisor.run())
        for url in await unreachable(http, plan.upstream):
            say(f"no model answers at {url}; going on, it may come later")
        await _wait_until_answering(plan, config, supervisor, http, say)
        announce(banner(plan))
        if model := await model_line(http, plan.server, agent):
            announce(f"  {model}")


async def _wait_until_answering(
    plan: LaunchPlan, config: Config, supervisor: Supervisor, http: httpx2.AsyncClient, say: Say
) -> None:
    """Wait until every process is ready, the agent server accepts the tendrils' keys, and the model
    generates a token."""
    await wait_until_ready(_checks(plan, config, supervisor, http), say)
    agent = with_agent_address(config).section(AgentSettings)
    own = {name: plan.key_of(name) or agent.key for name in plan.tendrils}
    checks = {name: lets_in(http, agent.server_url, key) for name, key in own.items()}
    key = next(iter(own.values()), agent.key)
    hint = f" ({', '.join(plan.upstream)}: see MODEL_UPSTREAM)" if plan.upstream else ""

    async def ask() -> str | None:
        missing = await ask_for_token(http, agent.server_url, key, agent.model)
        return missing and missing + hint

    async with ModelAnswers(ask) as answers:
        await wait_until_ready({**checks, "model": answers}, say)


async def _with_model(plan: LaunchPlan, config: Config, say: Say) -> LaunchPlan:
    """Download the model if the plan says so; return the plan, with the built-in model if a model
    of the catalogue cannot be downloaded. Raises TendrilError."""
    try:
        if plan.pull:
            await _pull(plan.pull)
    except TendrilError:
        if not plan.model:
            raise
        say(f"the model {plan.model} cannot be fetched now (see above); using the built-in one")
        plan = plan.with_built_in(config)
        assert plan.pull is not None
        await _pull(plan.pull)
    return plan


async def _pull(program: Program) -> None:
    """Download the model as a child process, which shows its progress. Raises TendrilError."""
    async with running(program, _RESTARTS.grace) as process:
        code = await process.wait()
    if code == EX_CONFIG:
        raise ChildConfigError(program.name)
    if code:
        raise TendrilError(
            "the model could not be fetched (it says why above); try again, or name a GGUF file "
            "with MODEL_PATH or an OpenAI-compatible server with MODEL_UPSTREAM"
        )


def _checks(
    plan: LaunchPlan, config: Config, supervisor: Supervisor, http: httpx2.AsyncClient
) -> dict[str, Check]:
    checks: dict[str, Check] = {}
    for program in plan.programs:
        if program.name == "server":
            checks[program.name] = server_ready(http, plan.server)
        elif program.name == "ircd" and plan.endpoint:
            checks[program.name] = irc_accepts(plan.endpoint)
        else:
            checks[program.name] = tendril_ready(config.data, program.name, supervisor.pids)
    return checks


def banner(plan: LaunchPlan) -> str:
    """Return the text for people: a line with the addresses, and hints on how to begin."""
    web, endpoint = plan.web, plan.endpoint
    parts = [f"agent server {plan.server}"]
    parts += [f"web {web}"] if web else []
    parts += [f"IRC {endpoint.host}:{endpoint.port}"] if endpoint else []
    hints = _irc_hints(endpoint) if endpoint else []
    hints += [("in the browser", web)] if web else []
    hints.append(("stop", "Ctrl-C"))
    return "\n".join(["ready  " + "  ".join(parts), *(f"  {key:<15} {do}" for key, do in hints)])


def _irc_hints(endpoint: IrcEndpoint) -> list[tuple[str, str]]:
    port = "" if endpoint.port == 6667 else f" -p {endpoint.port}"
    return [
        ("talk to it", f"irssi -c {endpoint.host}{port}"),
        ("", f"/join {endpoint.channel}"),
        ("", f"{endpoint.prefix}terrarium what is the capital of France?"),
    ]


def _ignore_more_signals() -> None:
    """Ignore SIGINT and SIGTERM, so that a second Ctrl-C does not interrupt the shutdown and leave
    a child process behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
