"""The commands `terrarium server` and `terrarium model`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import structlog
import typer

from agent_server.errors import PullError
from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.machine import Machine, engine_gpus
from agent_server.model_files import embedder
from agent_server.model_files import store as model_store
from agent_server.settings.models import DEFAULT_NAME, ModelSettings
from agent_server.settings.server import ServerSettings, held_address
from storage.db.database import Address, Database
from storage.db.errors import ServerAway
from storage.db.private_files import tighten_data
from terrarium.command_line import ConfigFile, DataFolder, align_columns, as_typed
from terrarium.config import Config, ConfigError, load
from terrarium.sockets import listen
from terrarium.supervision import SUPERVISED, is_stopped_within, serve_until_stopped

log = structlog.get_logger()

_DATABASE_PAUSE = 1.0  # seconds between two attempts to open the database while it is away

model = typer.Typer(help="Fetch and list models.", no_args_is_help=True)


def server(
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
    ray: Annotated[
        bool, typer.Option("--ray", help="on Ray Serve, with the engines of [ray]")
    ] = False,
    stand_in: Annotated[
        bool,
        typer.Option(
            "--stand-in", help="the built-in model answers until that of [model] is there"
        ),
    ] = False,
) -> None:
    """Run the agent server: the OpenAI API in front of one model.

    Without MODEL_PATH or MODEL_UPSTREAM a small default model is pulled on the first start.
    """
    settings = load(config, data)
    address, models = settings.section(ServerSettings), settings.section(ModelSettings)
    if ray:
        from agent_server.ray import command

        address.require_key()
        command.require_room(settings)
        command.prepare(settings.data, is_own=command.is_own())
        _require_file(settings)
        with _report_errors():
            model_store.ensure(models)
        embedder.ensure(models.folder)
        command.run(settings)
        return
    # Imported here: loading the web framework would slow down `terrarium model` as well.
    import uvloop

    from agent_server.app import create_app
    from terrarium.http import serving

    address.require_key()
    _require_file(settings)
    # Bind first: a port in use is reported before a model is downloaded.
    try:
        listener = listen(address.host, address.port)
    except OSError as error:
        where = f"{address.host} port {address.port}"
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error}"
        raise ConfigError(
            f"{where} {reason}; choose another with SERVER_PORT or [server] port"
        ) from error
    with listener:
        with _report_errors():
            model_store.ensure(models, stand_in=stand_in)
        app = create_app(settings, stand_in=stand_in)
        embedder.ensure(models.folder)
        # Imported objects live as long as the process: exclude them from garbage collection.
        gc.freeze()
        host, port = listener.getsockname()[:2]
        log.info("server.listening", host=host, port=port)
        # Once cancelled, `serve` lets running answers end within its grace period.
        uvloop.run(serve_until_stopped(serving.serve(app, listener)))


def _require_file(config: Config) -> None:
    """Check that the server's database can be opened; while PostgreSQL is away, wait for it. Raises
    StorageError.

    This comes before the server listens: afterwards it would be too late to refuse.
    """

    async def open_once(address: Address) -> None:
        async with Database.open(address, checked=True):
            pass

    said = ""
    while True:
        with held_address(config) as address:
            if isinstance(address, Path):
                tighten_data(address.parent)
            try:
                return asyncio.run(open_once(address))
            except ServerAway as away:
                if str(away) != said:
                    said = str(away)
                    typer.echo(f"terrarium: {said}; waiting for it", err=True)
        if is_stopped_within(_DATABASE_PAUSE):
            sys.exit(0)


@model.command()
def pull(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="small, medium, large or a name of `terrarium model list`, "
            "hf:OWNER/REPO/FILE.gguf, or a URL; by default the built-in model.",
        ),
    ] = None,
    sha256: Annotated[str | None, typer.Option(help="expected SHA-256 of the file")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace an existing file")] = False,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Download a model into the cache folder; an interrupted download is resumed."""
    with _report_errors():
        folder = load(config, data).section(ModelSettings).folder
        if source is None:
            path = model_store.pull_default(folder, force=force)
            if SUPERVISED not in os.environ:
                typer.echo(path)
            embedder.pull(folder)
            return
        path = model_store.pull(source, folder, sha256, force=force)
        if SUPERVISED not in os.environ:
            typer.echo(path)
            use = shlex.quote(str(source if catalogue.is_name(source) else path))
            use = f'use it with `terrarium up --model {use}`, or path = "{use}" in [model]'
            typer.echo(as_typed(use), err=True)


@model.command(name="list")
def list_models(
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="the models to pull, as JSON")] = False,
) -> None:
    """List the installed models and those to pull; * marks the best for this machine."""
    models, machine = load(config, data).section(ModelSettings), Machine.here(engine_gpus())
    if as_json:
        typer.echo(json.dumps([catalogue.describe(e, machine) for e in catalogue.entries()]))
        return
    here = {path.name: path for path in sorted(models.folder.glob("*.gguf"))}
    typer.echo(f"here, in {models.folder}:")
    for path in here.values():
        note = ", built in" if path.name == DEFAULT_NAME else ""
        note += ", in use" if path == models.file else ""
        typer.echo(f"  {path.stem}  {_size(path.stat().st_size)}{note}")
    if not here:
        typer.echo("  none yet: the built-in model is fetched on the first start")
    gpus = [f"{gpu.name}, {_size(gpu.memory)}" if gpu.memory else gpu.name for gpu in machine.gpus]
    here_is = "; ".join([f"{machine.cores} cores and {_size(machine.memory)}", *gpus])
    typer.echo(f"to pull, for {here_is}:")
    best = catalogue.best_for(machine)
    rows = [("  name", "size", "memory", "licence", "what it can do")]
    for entry in catalogue.entries():
        name = f"{entry.name} ({entry.tier})" if entry.tier else entry.name
        licence = entry.licence if entry.open_source else f"{entry.licence} (not open source)"
        can = f"{entry.can}; is here" if entry.file in here else entry.can
        sizes = (_size(entry.size), _size(entry.memory))
        rows.append((f"* {name}" if entry == best else f"  {name}", *sizes, licence, can))
    typer.echo(align_columns(rows))
    if best:
        name = best.tier or best.name
        typer.echo(as_typed(f"* the best that runs well here: `terrarium model pull {name}`"))


@contextlib.contextmanager
def _report_errors() -> Iterator[None]:
    try:
        yield
    except PullError as error:
        typer.echo(f"terrarium: {error}", err=True)
        sys.exit(1)


def _size(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"
