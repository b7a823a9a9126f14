"""`terrarium up`: starts and supervises all processes of one machine until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import httpx2

from harnesses.core.addresses import (
    RunningUp,
    published_up_file,
    table_settings,
    with_agent_address,
)
from harnesses.core.errors import TendrilError
from harnesses.core.launcher.plan import LaunchPlan
from harnesses.core.launcher.readiness import (
    Check,
    ask_for_token,
    irc_accepts,
    lets_in,
    model_line,
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
from llm.client.settings import AgentSettings
from storage.db.database import Database
from storage.db.errors import ServerAway, StorageError
from storage.db.process_lock import hold_lock
from storage.settings import store_address
from storage.usage.api_keys import Key, Keys
from terrarium.command_line import as_typed
from terrarium.config import FILE, Config, ConfigError, load
from terrarium.file_watcher import POLL_INTERVAL, file_stamp
from terrarium.supervision import notify_systemd, root_cause, told_to_stop

Say = Callable[[str], None]

_RESTARTS = RestartPolicy()
_SWAP_PAUSE, _SWAP_TIMEOUT = 0.5, 300.0
"""Seconds between two looks at which model answers, and until nobody waits for the change."""

_DATABASE_PAUSE, _DATABASE_TIMEOUT = 1.0, 300.0
"""Seconds between two looks for PostgreSQL that is away, and until it is an error that it is."""

_HEALTH_TIMEOUT = 10.0  # seconds
_TOKEN_PAUSE = 2.0  # seconds between two attempts to get a first token

_LOCAL = "local"
"""The name of the launch key for commands such as `terrarium chat`."""

_BACKGROUND = ("cron",)
"""Tendrils whose answers nobody waits for, so that their keys have background priority."""


async def up(config: Config, say: Say, announce: Say) -> bool:
    """Run the processes that `config` asks for until told to stop; all have ended on return. Return
    True if they are to be started again, because a first configuration file has been written.

    `say` receives lines about the progress, `announce` the text for people once all are ready.
    Raises ConfigError, TendrilError and StorageError.
    """
    plan = LaunchPlan.from_config(config)
    with hold_lock(config.data, "up", "terrarium up"):
        for port in plan.ports:
            port.check()
        async with _with_keys(plan, config, say) as plan:
            try:
                async with asyncio.TaskGroup() as tasks:
                    serving = tasks.create_task(_run_all(plan, config, say, announce))
                    stop = tasks.create_task(told_to_stop())
                    ends = {stop}
                    if config.path is None:
                        ends.add(tasks.create_task(_first_file(config, say)))
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    if stop.done():
                        # A second Ctrl-C must not interrupt the shutdown and leave a child behind.
                        for number in (signal.SIGINT, signal.SIGTERM):
                            signal.signal(number, signal.SIG_IGN)
                    serving.cancel()
                    await asyncio.wait({serving})
                    for task in ends:
                        task.cancel()
            except ExceptionGroup as group:
                raise root_cause(group) from group
    return stop.cancelled()


async def _first_file(config: Config, say: Say) -> None:
    """Wait until a valid configuration file is there; `config` is without one."""
    seen = None
    while True:
        await asyncio.sleep(POLL_INTERVAL)
        stamp = file_stamp(FILE)
        size = stamp[2] if stamp else 0  # bytes; it is empty while it is written
        if not size or stamp == seen:
            continue
        seen = stamp
        try:
            load(None, config.data)
        except ConfigError as error:
            say(f"terrarium: going on without this file: {error}")
            continue
        say(f"terrarium: {FILE} is there; starting again with it")
        return


@asynccontextmanager
async def _with_keys(plan: LaunchPlan, config: Config, say: Say) -> AsyncIterator[LaunchPlan]:
    """Create the launch keys and publish the up file; yield the plan with keys for its tendrils.

    Each tendril receives its key in its environment; commands on the same machine share one. Usage
    is thus accounted by name, and the processes still have access once the owner issues a first
    key, after which the agent server requires one. Keys of earlier starts are revoked.
    """
    keys = [
        Key(each, priority="background" if each in _BACKGROUND else "interactive")
        for each in dict.fromkeys((*plan.tendrils, _LOCAL))
    ]
    away, until = "", time.monotonic() + _DATABASE_TIMEOUT
    while True:
        try:
            async with Database.open(store_address(config, "server")) as database:
                secrets = await Keys(database).replace_launch_keys(keys)
            break
        except ServerAway as error:
            if time.monotonic() > until:
                raise
            if str(error) != away:
                away = str(error)
                say(f"terrarium: {away}; waiting for it")
            await asyncio.sleep(_DATABASE_PAUSE)
    running = RunningUp(
        pid=os.getpid(),
        server=plan.server,
        web=plan.web,
        irc_port=plan.endpoint.port if plan.endpoint and plan.endpoint.embedded else None,
        key=secrets[_LOCAL],
        setup=plan.setup,
    )
    agent, admin = config.section(AgentSettings), table_settings(config, "server")["admin_key"]
    # The tendrils keep their configured key, if they ask another server (with a free port, ours is
    # not at the default `api_url`, which names no server) or have one that is not the admin key: a
    # process that reads messages from strangers must not have that.
    asks_another = agent.server_url != plan.server and "api_url" in agent.model_fields_set
    keeps_key = asks_another or (agent.api_key is not None and agent.api_key != admin)
    try:
        with published_up_file(config.data, running):
            yield plan.with_keys({} if keeps_key else secrets)
    finally:
        with suppress(StorageError):  # the next start revokes them
            async with Database.open(store_address(config, "server")) as database:
                await Keys(database).replace_launch_keys(())


async def _run_all(plan: LaunchPlan, config: Config, say: Say, announce: Say) -> None:
    await _pull(plan.pull)
    supervisor = Supervisor(plan.programs, say, _RESTARTS)
    async with httpx2.AsyncClient(trust_env=False) as http, asyncio.TaskGroup() as tasks:
        tasks.create_task(supervisor.run())
        # The processes are supervised from here on; that a model answers may take hours.
        notify_systemd("READY=1\nSTATUS=waiting for the model")
        tasks.create_task(_watch(http, plan.server))
        for away in await unreachable(http, plan.upstream):
            say(f"no model answers at {away} yet; starting without it")
        checks: dict[str, Check] = {"server": partial(server_ready, http, plan.server)}
        if plan.endpoint and plan.endpoint.embedded:
            checks["ircd"] = partial(irc_accepts, plan.endpoint)
        for name in plan.tendrils:
            checks[name] = partial(tendril_ready, config.data, name, supervisor.pids)
        await wait_until_ready(checks, say)
        agent = with_agent_address(config).section(AgentSettings)
        # Now the agent server has to accept the tendrils' keys, and the model to generate a token.
        keys = {
            each.name: each.environment.get("AGENT_API_KEY") or agent.key
            for each in plan.programs
            if each.name in plan.tendrils
        }
        url, key = agent.server_url, next(iter(keys.values()), agent.key)
        accepts: dict[str, Check] = {
            name: partial(lets_in, http, url, own) for name, own in keys.items()
        }
        await wait_until_ready(accepts, say)
        hint = f" ({', '.join(plan.upstream)}: see MODEL_UPSTREAM)" if plan.upstream else ""

        async def answers() -> str | None:
            missing = await ask_for_token(http, url, key, agent.model)
            return missing and missing + hint

        await wait_until_ready({"model": answers}, say, pause=_TOKEN_PAUSE)
        model = await model_line(http, plan.server, agent)
        announce(f"\n{banner(plan, model)}\n")
        notify_systemd("STATUS=ready")
        if not plan.later:
            return
        try:
            await _pull(plan.later)
        except TendrilError:
            say(
                f"the model {plan.model} cannot be fetched now (see above): the built-in one"
                f" answers until `terrarium model pull {plan.model}` has fetched it"
            )
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_SWAP_TIMEOUT):
                while (now := await model_line(http, plan.server, agent)) in (model, None):  # noqa: ASYNC110
                    await asyncio.sleep(_SWAP_PAUSE)
                announce(f"now    {now}")


async def _watch(http: httpx2.AsyncClient, server: str) -> None:
    """Feed systemd's watchdog until the agent server has come up, then as long as it answers."""
    microseconds, has_answered = os.environ.get("WATCHDOG_USEC", ""), False
    while microseconds.isdecimal():
        is_well = False
        with suppress(httpx2.HTTPError):
            is_well = (await http.get(f"{server}/health", timeout=_HEALTH_TIMEOUT)).is_success
        has_answered |= is_well
        if is_well or not has_answered:
            notify_systemd("WATCHDOG=1")
        await asyncio.sleep(int(microseconds) / 4e6)


async def _pull(program: Program | None) -> None:
    """Download the model as a child process, which shows its progress. Raises TendrilError."""
    if program is None:
        return
    async with running(program, _RESTARTS.grace) as process:
        code = await process.wait()
    if code == EX_CONFIG:
        raise ChildConfigError(program.name)
    if code:
        raise TendrilError(
            "the model could not be fetched (it says why above); try again, or name a GGUF file "
            "with MODEL_PATH or an OpenAI-compatible server with MODEL_UPSTREAM"
        )


def banner(plan: LaunchPlan, model: str | None = None) -> str:
    """Return the text for people: a line with the addresses, the model, and how to begin."""
    addresses, hints = [f"agent server {plan.server}"], list[tuple[str, str]]()
    for line in (model or "").splitlines():
        key, _, text = line.partition(" ")
        hints.append((key, as_typed(text).replace("`", "")))
    if plan.model:
        hints = [*hints[:1], ("coming", f"{plan.model}, which answers as soon as it is fetched")]
    if plan.web:
        addresses.append(f"web {plan.web}")
    if irc := plan.endpoint:
        addresses.append(f"IRC {irc.host}:{irc.port}")
        ask = f"{irc.prefix}terrarium what is the capital of France?"
        hints += zip(("talk to it", "", "", ""), (*irc.irssi, ask), strict=False)
    if plan.web:
        hints.append(("in the browser", plan.web))
    if plan.setup:
        hints.append(("set up", f"{plan.web}/setup?token={plan.setup}"))
    hints.append(("stop", "Ctrl-C"))
    lines = ["ready  " + "  ".join(addresses), *(f"  {key:<15} {do}" for key, do in hints)]
    return "\n".join(lines)
