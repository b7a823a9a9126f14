"""The page that writes the first configuration file, as `terrarium init` does in the terminal.

It is only there while there is no such file, and for whoever has the link that `terrarium up` has
printed on this machine.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request, Response

from harnesses.core.addresses import RunningUp, read_up_file
from harnesses.core.errors import TendrilError
from harnesses.core.launcher.plan import BUILT_IN
from harnesses.core.launcher.supervisor import EX_CONFIG
from harnesses.setup.answers import OWN, OWN_TITLE, PUBLIC_NETWORKS, QUESTIONS, Answers, models
from harnesses.web.app_state import AppStateDep
from harnesses.web.rendering.view import page, read_form
from storage.db.errors import StorageError
from terrarium.config import FILE, ConfigError
from terrarium.loopback import host_of, is_loopback

# -P: with -m alone, Python would import modules from the current directory first.
_TRIAL = (sys.executable, "-P", "-m", "harnesses.setup.trial")
"""The program that validates and tries the tables: tendrils do not import one another."""

_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
_SECRETS = ("password", "model_key")


def running_up(request: Request, state: AppStateDep) -> RunningUp:
    """Return the `terrarium up` whose link has been opened on this machine. Raises HTTPException:
    404 if there is a configuration file, 403 for everybody else."""
    running = read_up_file(state.data)
    if running is None or not running.setup or os.path.lexists(FILE):
        raise HTTPException(404)
    client, headers = request.client.host if request.client else "", request.headers
    is_here = is_loopback(client) and is_loopback(host_of(headers.get("host", "")))
    if not is_here or any(name in headers for name in (*_FORWARDED, "x-real-ip")):
        raise HTTPException(403, "This page opens only on the machine itself, without a proxy.")
    token = request.query_params.get("token", "")
    if not hmac.compare_digest(token.encode(), running.setup.encode()):
        raise HTTPException(403, "Open the link that `terrarium up` has printed after `set up`.")
    return running


RunningDep = Annotated[RunningUp, Depends(running_up)]
router = APIRouter(include_in_schema=False)


@router.get("/setup")
async def show_setup(request: Request, state: AppStateDep, _up: RunningDep) -> Response:
    """Show the form, with what is taken if nothing is changed."""
    state.setup_secrets.clear()
    known = await asyncio.to_thread(models)
    best = next((each["answer"] for each in known if each["best"]), BUILT_IN)
    return await _form(request, {"tls": "on", "network": OWN, "model": best})


@router.post("/setup")
async def set_up(request: Request, state: AppStateDep, running: RunningDep) -> Response:
    """Try the answers or, with the `action` write, write them to the file."""
    form = await read_form(request)
    form |= {name: value.strip() for name, value in form.items() if name not in _SECRETS}
    network = form.get("server") or form.get("network", OWN)
    model = form.get("upstream") or form.get("model", "")
    for name, server in zip(_SECRETS, (network, model), strict=True):
        # Kept for this server alone: another one must not be sent the password.
        key = (name, server)
        form[name] = form.get(name) or state.setup_secrets.get(key, "")
        state.setup_secrets[key] = form[name]
    given = {name: form.get(name, "") for name in (*_SECRETS, "nick", "channels", "admin")}
    answers = Answers(
        model=model,
        network=network,
        tls="tls" in form,
        account=form.get("account", ""),
        token=secrets.token_urlsafe(24) if "shown" in form else "",
        **given,
    )
    is_written = form.get("action") == "write"
    try:
        findings = await _try(answers, "check" if is_written else "connect", running)
        if not is_written:
            return await _form(request, form, findings=findings)
        answers.write(FILE)
    except (ConfigError, TendrilError) as error:
        return await _form(request, form, status=422, problem=str(error))
    state.setup_secrets.clear()
    response = page(request, "setup_done.html", answers=answers, file=FILE)
    if answers.token:
        with suppress(StorageError):  # the token can still be typed
            await state.tokens.log_in(answers.token, response, secure=False)
    return response


async def _form(
    request: Request,
    form: dict[str, str],
    *,
    status: int = 200,
    problem: str = "",
    findings: Sequence[str] | None = None,
) -> Response:
    """Return the form with what has been typed; of passwords only whether they have been."""
    values: dict[str, Any] = {
        "questions": QUESTIONS,
        "networks": PUBLIC_NETWORKS,
        "own": OWN,
        "own_title": OWN_TITLE,
        "problem": problem,
        "findings": findings,
        "kept": [name for name in _SECRETS if form.get(name)],
        "form": {name: value for name, value in form.items() if name not in _SECRETS},
        "models": await asyncio.to_thread(models),
    }
    response = page(request, "setup.html", status=status, **values)
    response.headers["Cache-Control"] = "no-store"
    return response


async def _try(answers: Answers, how: str, running: RunningUp) -> list[str]:
    """Validate the answers, with `how` connect also try them; return the findings. Raises
    ConfigError and TendrilError."""
    # `up` tells its tendrils the address of its own IRC server by these.
    own = {} if running.irc_port is None else {"IRC_SERVER": "", "IRC_PORT": ""}
    environment = {**os.environ, **own}
    process = await asyncio.create_subprocess_exec(
        *_TRIAL, how, stdin=PIPE, stdout=PIPE, env=environment
    )
    try:
        out, _ = await process.communicate(json.dumps(answers.tables).encode())
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode == EX_CONFIG:
        raise ConfigError(out.decode())
    if process.returncode:
        raise TendrilError("The answers could not be tried; the log of the web tendril says why.")
    return out.decode().splitlines()
