"""The `terrarium` command line: our commands and those of `terrarium.commands` entry points.

Exit status 78 (EX_CONFIG in sysexits.h) means that a restart does not help until somebody changes
something: the configuration, an unusable file, or another process that does the same work.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from harnesses.core.errors import PortTaken, TendrilError
from harnesses.core.launcher.supervisor import EX_CONFIG, ChildConfigError
from storage.db.errors import StorageError, UnusableFile
from storage.db.private_files import keep_private, tighten_data
from storage.db.process_lock import AlreadyRunning, hold_lock
from terrarium.command_line import (
    ConfigFile,
    DataFolder,
    as_typed,
    foreign_llm,
    remember_command,
    show_version,
)
from terrarium.config import FILE, ConfigError, load
from terrarium.entry_points import entry_points
from terrarium.logging import Format, Level, configure, configure_child

# Each command imports its dependencies when it runs: the others start quickly, and a broken package
# breaks only its own commands.

GROUP = "terrarium.commands"

app = typer.Typer(
    help="An IRC bot that remembers, with a model of its own. `terrarium up` starts everything.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
config_app = typer.Typer(help="Check or show the configuration.", no_args_is_help=True)
app.add_typer(config_app, name="config")

# Commands that keep the user's umask: other users may read the models and source code they write.
_FOR_OTHERS = ("model", "new")


def _tell(text: str) -> None:
    typer.echo(as_typed(text), err=True)


def main() -> None:
    """Run the command line and exit; expected errors are one line on standard error."""
    remember_command(sys.argv[0])
    try:
        if warning := foreign_llm():
            _tell(f"terrarium: {warning}")
        # Loading a command of another package imports that, so only those named on the command line
        # are loaded, none for a built-in command, and all for a listing.
        own = {"--version", *(str(group.name) for group in app.registered_groups)}
        for registered in app.registered_commands:
            if registered.callback:
                own.add(registered.name or registered.callback.__name__)
        others = entry_points(GROUP)
        named = [entry for entry in others if entry.name in sys.argv[1:]]
        if not named and not own.intersection(sys.argv[1:]):
            named = list(others)
        for entry in named:
            try:
                command = entry.load()
            except ImportError as error:
                _tell(f"terrarium: the command {entry.name} cannot be loaded: {error}")
                continue
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=entry.name)
            else:
                app.command(entry.name)(command)
        app(prog_name="terrarium")
    except (ConfigError, PortTaken, ChildConfigError, AlreadyRunning, UnusableFile) as error:
        sys.exit(_exit_status(error, EX_CONFIG))
    except (TendrilError, StorageError) as error:
        sys.exit(_exit_status(error, 1))


def _exit_status(error: Exception, status: int) -> int:
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    _tell(f"terrarium: {error}{notes}")
    return status


@app.callback()
def _options(
    context: typer.Context,
    log_level: Annotated[
        Level, typer.Option(envvar="TERRARIUM_LOG_LEVEL", help="Log this level and above.")
    ] = "info",
    log_format: Annotated[
        Format, typer.Option(envvar="TERRARIUM_LOG_FORMAT", help="For people, or JSON lines.")
    ] = "console",
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand not in _FOR_OTHERS:
        keep_private()
    # The child processes of `up` read these.
    os.environ.update(TERRARIUM_LOG_LEVEL=log_level, TERRARIUM_LOG_FORMAT=log_format)
    configure(context.invoked_subcommand or "terrarium", log_level, log_format)


@app.command()
def init(
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Ask nothing: use the options given, and defaults for the rest."
        ),
    ] = False,
    model: Annotated[
        str, typer.Option(help="built-in, a name of `terrarium model list`, or a server's URL.")
    ] = "",
    network: Annotated[
        str, typer.Option(help="own, libera, oftc, hackint, or the host name of a server.")
    ] = "",
    nick: Annotated[str, typer.Option(help="The bot's nick.")] = "",
    channels: Annotated[str, typer.Option(help="Its channels, separated by commas.")] = "",
    admin: Annotated[str, typer.Option(help="Services account of its admin.")] = "",
    config: ConfigFile = None,
) -> None:
    """Write a first terrarium.toml: asks for model, network, channels and access, and tries them.

    An existing file is never replaced without a question. Passwords are asked for, not shown, and
    written to the file, which only you can read.
    """
    from harnesses.setup.wizard import Wizard

    given = {"model": model, "network": network, "nick": nick, "channels": channels, "admin": admin}
    Wizard.given(config or FILE, yes, **given).run()


@app.command()
def up(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="small, medium, large, a name of `terrarium model list`, or a GGUF file.",
        ),
    ] = None,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Start everything: model, agent server, tendrils, and an IRC server if you name none.

    It prints a line that begins with "ready" when the bot can be asked, and how to do that.
    Ctrl-C stops everything. The built-in model answers until the one of --model is fetched.
    """
    if model:
        os.environ["MODEL_PATH"] = model
    from harnesses.core.launcher.up import up as run_everything

    is_wanted = True
    while is_wanted:
        loaded = load(config, data)
        tighten_data(data)
        is_wanted = asyncio.run(
            run_everything(loaded, _tell, lambda text: typer.echo(as_typed(text)))
        )


@app.command()
def run(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="irc, web, cron, or a tendril you installed.")
    ],
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Run one tendril."""
    from harnesses.core.addresses import with_agent_address
    from harnesses.core.launcher.tendrils import run_until_stopped, tendril_class

    kind = tendril_class(name)
    configure_child(name)  # with the log options that were given before the command
    loaded = with_agent_address(load(config, data), tendril=name)
    process = kind(loaded)
    # The lock is shared only where several processes may serve one tendril, as IRC standbys do.
    with hold_lock(data, name, f"terrarium run {name}", shared=process.shares_work):
        tighten_data(data)
        run_until_stopped(process, lambda: kind(loaded), _tell)


@app.command()
def doctor(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Check only this tendril's process, which is quick."),
    ] = None,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Check every part and say what to do about each problem. Exit status 1 if there is one."""
    if name is None:
        from harnesses.core.launcher.doctor import run_checks

        findings = asyncio.run(run_checks(load(config, data)))
    else:
        from harnesses.core.tendril.status import examine_process

        findings = [examine_process(data, name)]
    width = max(len(found.what) for found in findings)
    for found in findings:
        text = as_typed(found.text)
        typer.echo(f"{'ok' if found.ok else 'problem':<8} {found.what:<{width}}  {text}")
    raise typer.Exit(0 if all(found.ok for found in findings) else 1)


@config_app.command()
def check(config: ConfigFile = None, data: DataFolder = Path("data")) -> None:
    """Check the whole configuration file and the environment."""
    loaded = load(config, data)
    typer.echo(
        f"{loaded.name} is valid" if loaded.path else "No terrarium.toml: using the defaults"
    )


@config_app.command()
def show(config: ConfigFile = None, data: DataFolder = Path("data")) -> None:
    """Show every key with its effective value and where that comes from; secrets as ***."""
    from harnesses.core.effective import config_entries

    table = ""
    for value in config_entries(load(config, data)):
        if value.table != table:
            typer.echo(("\n" if table else "") + f"[{value.table}]")
            table = value.table
        line = f"{value.key} = {value.text}" if value.text else f"# {value.key} is not set"
        typer.echo(f"{line}  # {value.origin}" if value.text else line)


if __name__ == "__main__":
    main()
