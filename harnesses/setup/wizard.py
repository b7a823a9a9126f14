"""The questions of `terrarium init` in the terminal."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from harnesses.core.addresses import table_settings
from harnesses.core.errors import TendrilError
from harnesses.core.launcher.plan import BUILT_IN
from harnesses.setup.answers import OWN, OWN_TITLE, PUBLIC_NETWORKS, QUESTIONS, Answers, models
from harnesses.setup.trial import connect
from terrarium.command_line import align_columns, as_typed
from terrarium.config import Config, ConfigError
from terrarium.loopback import is_loopback


@dataclass(slots=True)
class Wizard:
    """Asks what the `answers` leave open, and writes the file; with `yes` it asks nothing."""

    answers: Answers
    file: Path
    yes: bool = False

    @classmethod
    def given(cls, file: Path, yes: bool, **answers: Any) -> Wizard:
        """Return the wizard of which some answers are given, "" for those that are not."""
        return cls(Answers(**answers), file, yes)

    def run(self) -> None:
        """Write the file, and try what it names. Raises ConfigError and TendrilError."""
        replaces = self.file.exists()
        if replaces:
            if self.yes:
                raise TendrilError(
                    f"{self.file} exists already; remove it, or name another file with --config"
                )
            typer.confirm(f"{self.file} exists. Replace it?", abort=True)
        if self.yes:
            self._check(self.answers, "model")
        else:
            typer.echo("Press Enter to accept the answer in brackets, Ctrl-C to cancel.")
            self.ask_for_model()
            self.ask_for_network()
            self.ask_for_pages()
        config = self._config(self.answers)
        config.check()
        self.answers.write(self.file, replaces=replaces)
        typer.echo(f"\n{self.file} is written.")
        for line in asyncio.run(connect(config)):
            typer.echo(line)
        if public := self.answers.public:
            typer.echo(f"\nBefore the bot joins {public.title}:")
            typer.echo("\n".join(f"- {line}" for line in public.advice))
            typer.echo(f"A text for the entry message or the topic:\n  {self.answers.notice}\n")
        typer.echo(as_typed("Start everything with `terrarium up`."))

    def ask_for_model(self) -> None:
        """Ask for the model: one of the catalogue that runs well here, or a server. Raises
        ConfigError."""
        if self.answers.model:
            self._check(self.answers, "model")
        else:
            heading = "Models that run well here (estimated; `terrarium model list` has all)"
            typer.echo(as_typed(f"\n{heading}:\n"))
            typer.echo(align_columns([each["row"] for each in models()]))
            typer.echo(QUESTIONS["upstream"])
            best = next((each["answer"] for each in models() if each["best"]), BUILT_IN)
            self._ask("model", best, "model")
        if "upstream" in self.answers.tables["model"]:
            self._ask_secret("model_key")

    def ask_for_network(self) -> None:
        """Ask for the IRC network, and what the bot needs there."""
        if not self.answers.network:
            titles = [(name, each.title) for name, each in PUBLIC_NETWORKS.items()]
            typer.echo("\nIRC networks:\n")
            typer.echo(align_columns([(OWN, OWN_TITLE), *titles]))
            typer.echo(QUESTIONS["server"])
            self._ask("network", OWN, "irc")
        server = self.answers.tables["irc"].get("server")
        if server and not self.answers.public:
            tls = typer.confirm(QUESTIONS["tls"], not is_loopback(server))
            self.answers = replace(self.answers, tls=tls)
        self._ask("nick", "Terra", "irc")
        self._ask("channels", "#terrarium", "irc")
        if server:
            self._ask("admin", "")
            self._ask_secret("password")
            if "sasl_username" in self.answers.tables["irc"]:
                self._ask("account", self.answers.nick)

    def ask_for_pages(self) -> None:
        """Ask who may read the pages."""
        if typer.confirm(f"\n{QUESTIONS['shown']}", default=False):
            self.answers = replace(self.answers, token=secrets.token_urlsafe(24))
            typer.echo(f"The token will be in {self.file}, [web] token.")

    def _ask(self, name: str, default: str, table: str = "") -> None:
        """Ask for an answer that is not given, again while the table is not valid."""
        while not getattr(self.answers, name):
            prompt = typer.prompt(QUESTIONS[name], default, show_default=bool(default))
            given: dict[str, Any] = {name: str(prompt).strip()}
            answers = replace(self.answers, **given)
            try:
                if table:
                    self._check(answers, table)
            except ConfigError as error:
                typer.echo(f"  {error}", err=True)
                continue
            self.answers = answers
            return

    def _ask_secret(self, name: str) -> None:
        question = f"{QUESTIONS[name]} (not shown; empty for none)"
        secret = typer.prompt(question, "", hide_input=True, show_default=False)
        given: dict[str, Any] = {name: str(secret)}
        self.answers = replace(self.answers, **given)

    def _check(self, answers: Answers, table: str) -> None:
        table_settings(self._config(answers), table)

    def _config(self, answers: Answers) -> Config:
        return Config(answers.tables, self.file, Path("data"))
