"""The questions of `terrarium init`, and the file that their answers make."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import typer

from harnesses.core.addresses import table_settings
from harnesses.core.errors import TendrilError
from harnesses.core.launcher.doctor import check_model
from harnesses.core.launcher.plan import BUILT_IN, command_line
from harnesses.irc.settings import networks
from harnesses.setup.networks import MARK, PUBLIC_NETWORKS, PublicNetwork, try_login
from storage.db.private_files import make_file
from terrarium.command_line import align_columns, as_typed
from terrarium.config import Config, ConfigError
from terrarium.loopback import is_loopback

OWN = "own"
"""The answer for the IRC server that `terrarium up` brings along."""

_HEAD = """\
# Written by `terrarium init`. `terrarium config show` lists all keys with their values; a wrong one
# is reported by `terrarium config check`.
"""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers given by options, "" for those that are not; with `yes` no question is asked."""

    yes: bool
    model: str = ""
    network: str = ""
    nick: str = ""
    channels: str = ""
    admin: str = ""


@dataclass(slots=True)
class Wizard:
    """Asks what `given` leaves open. `tables` are the answers so far, as tables of the file."""

    given: Answers
    file: Path
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run(self) -> None:
        """Write the file, and try what it names. Raises ConfigError and TendrilError."""
        if self.file.exists():
            if self.given.yes:
                raise TendrilError(
                    f"{self.file} exists already; remove it, or name another file with --config"
                )
            typer.confirm(f"{self.file} exists. Replace it?", abort=True)
        if not self.given.yes:
            typer.echo("Press Enter to accept the answer in brackets, Ctrl-C to cancel.")
        self.ask_for_model()
        public = self.ask_for_network()
        self.ask_for_pages()
        config = self._config(self.tables)
        config.check()
        try:
            make_file(self.file)
            self.file.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise TendrilError(f"{self.file} cannot be written: {error}") from error
        typer.echo(f"\n{self.file} is written.")
        asyncio.run(self.connect(config))
        if public:
            self.explain(public)
        typer.echo(as_typed("Start everything with `terrarium up`."))

    def ask_for_model(self) -> None:
        """Ask for the model: one of the catalogue that runs well here, or a server. Raises
        ConfigError."""
        if not self.given.yes and not self.given.model:
            defaults = Config({}, Path(os.devnull), Path("data"))  # not the file to be replaced
            command = command_line(defaults, "model", "list", "--json")
            listed = subprocess.run(command, capture_output=True, text=True, check=True)
            models = json.loads(listed.stdout)
            rows = [(BUILT_IN, "93 MB", "", "quotes the log, answers in a sentence")]
            rows += [
                (
                    each["tier"] or each["name"],
                    f"{each['size'] / 1e9:.1f} GB",
                    f"reads {each['prompt_speed']:.0f} tokens/s",
                    f"{each['can']}{' (the best here)' if each['best'] else ''}",
                )
                for each in models
                if each["runs_well"]
            ]
            heading = "Models that run well here (estimated; `terrarium model list` has all)"
            typer.echo(as_typed(f"\n{heading}:\n"))
            typer.echo(align_columns(rows))
            typer.echo(
                "or the address of a server: http://127.0.0.1:11434 for Ollama, or any with"
                " OpenAI's API"
            )
            best = next((each for each in models if each["best"]), None)
            default = (best["tier"] or best["name"]) if best else BUILT_IN
            answer = self._ask("Model", default, self._check_model)
        else:
            answer = self.given.model or BUILT_IN
            self._check_model(answer)
        self.tables["model"] = self._model_table(answer)
        if "upstream" in self.tables["model"] and not self.given.yes:
            self.tables["model"] |= self._secret("Its API key, if it needs one", "upstream_key")

    def ask_for_network(self) -> PublicNetwork | None:
        """Ask for the IRC network, and what the bot needs there; return it if it is a known one."""
        titles = [(name, each.title) for name, each in PUBLIC_NETWORKS.items()]
        if not self.given.yes and not self.given.network:
            typer.echo("\nIRC networks:\n")
            typer.echo(align_columns([(OWN, "a server on this machine, to try it out"), *titles]))
            typer.echo("or another server: its host name, with :PORT if that is not the usual one")
        name = self.given.network or self._ask(
            "Network", OWN, lambda name: self._check_irc(**_server(name))
        )
        public = PUBLIC_NETWORKS.get(name.lower())
        irc = self.tables["irc"] = _server(name)
        if irc and not public:
            is_elsewhere = not is_loopback(irc["server"])
            irc["tls"] = self._confirm("Encrypt the connection (TLS)", is_elsewhere)
        nick = self.given.nick or self._ask(
            "The bot's nick", "Terra", lambda nick: self._check_irc(nick=nick)
        )
        irc["nick"] = nick
        channels = self.given.channels or self._ask(
            "Channels", "#terrarium", lambda names: self._check_irc(channels=_channels(names))
        )
        irc["channels"] = _channels(channels)
        if "server" not in irc:
            return None
        admin = self.given.admin or self._ask(
            "Your services account there: you give the bot orders (empty: nobody does)", ""
        )
        if admin:
            irc["admins"] = [admin]
        if public:
            irc["realname"] = f"LLM bot of {admin}; .help" if admin else "LLM bot; .help"
            irc["mark"] = MARK
        login = public.login if public else "sasl_password"
        if not self.given.yes and (secret := self._secret("Password of the bot's account", login)):
            irc |= secret
            if login == "sasl_password":
                irc |= {"sasl_username": self._ask("Name of that account", nick)}
                irc["sasl_required"] = True
        return public

    def ask_for_pages(self) -> None:
        """Ask who may read the pages."""
        if self._confirm("\nShow the pages to other machines, with a token", default=False):
            self.tables["web"] = {"host": "0.0.0.0", "token": secrets.token_urlsafe(24)}
            typer.echo(f"The token will be in {self.file}, [web] token.")

    def explain(self, public: PublicNetwork) -> None:
        """Print the rules of a public network, and a text for its channel."""
        irc = self.tables["irc"]
        channel, admin = next(iter(irc["channels"]), "#channel"), irc.get("admins", ["..."])[0]
        typer.echo(f"\nBefore the bot joins {public.title}:")
        rules = (*public.rules, f"Its own account, if it has none yet: {public.register}")
        typer.echo("\n".join(f"- {line}" for line in rules))
        typer.echo(
            f"A text for the entry message or the topic:\n  /msg ChanServ SET {channel} ENTRYMSG"
            f" {irc['nick']} is an LLM bot run by {admin}. It reads and logs this channel;"
            " .nolog opts out, .help tells more.\n"
        )

    async def connect(self, config: Config) -> None:
        """Connect to the servers that the answers name, and print which of them can be used."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            model = table_settings(config, "model")
            finding = await check_model(model, model["upstream"], http)
            if not finding.ok:
                typer.echo(f"The model: {finding.text}.")
        if "server" in self.tables["irc"]:
            (settings,) = networks(config).values()
            reached, problem = await try_login(settings)
            typer.echo(f"{settings.server}: {'; '.join(filter(None, (reached, problem)))}")

    def _ask(
        self, question: str, default: str, check: Callable[[str], None] = lambda _: None
    ) -> str:
        """Return the answer, by `yes` the default; it is asked again while `check` fails."""
        while not self.given.yes:
            answer = str(typer.prompt(question, default, show_default=bool(default))).strip()
            try:
                check(answer)
            except ConfigError as error:
                typer.echo(f"  {error}", err=True)
                continue
            return answer
        return default

    def _confirm(self, question: str, default: bool) -> bool:
        return default if self.given.yes else typer.confirm(question, default)

    def _secret(self, question: str, key: str) -> dict[str, str]:
        secret = str(
            typer.prompt(
                f"{question} (not shown; empty for none)", "", hide_input=True, show_default=False
            )
        )
        return {key: secret} if secret else {}

    def _config(self, tables: Mapping[str, Mapping[str, Any]]) -> Config:
        return Config(tables, self.file, Path("data"))

    def _model_table(self, answer: str) -> dict[str, Any]:
        if "://" in answer:
            return {"upstream": answer}
        return {} if answer == BUILT_IN else {"path": answer}

    def _check_model(self, answer: str) -> None:
        table_settings(self._config({"model": self._model_table(answer)}), "model")

    def _check_irc(self, **keys: Any) -> None:
        table_settings(self._config({"irc": keys}), "irc")

    @property
    def text(self) -> str:
        """The file with the answers so far."""
        parts = [_HEAD]
        for name, values in self.tables.items():
            if values:
                # A JSON string, list, number or boolean is one of TOML, too.
                lines = [
                    f"{key} = {json.dumps(value, ensure_ascii=False)}"
                    for key, value in values.items()
                ]
                parts.append("\n".join([f"\n[{name}]", *lines]) + "\n")
        return "".join(parts)


def _server(name: str) -> dict[str, Any]:
    """Return the keys of [irc] that name a server, none for the embedded one."""
    if public := PUBLIC_NETWORKS.get(name.lower()):
        return {"server": public.server, "tls": True}
    if name.lower() == OWN:
        return {}
    host, _, port = name.rpartition(":") if name.count(":") == 1 else (name, "", "")
    return {"server": host} | ({"port": int(port) if port.isdecimal() else port} if port else {})


def _channels(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [name if name[0] in "#&+!" else f"#{name}" for name in names]
