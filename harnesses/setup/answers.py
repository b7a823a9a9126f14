"""The answers for a first configuration, by `terrarium init` or by its page, their file, and the
public IRC networks that it knows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from harnesses.core.errors import TendrilError
from harnesses.core.launcher.plan import BUILT_IN, command_line
from storage.db.private_files import make_file
from terrarium.config import Config
from terrarium.loopback import is_loopback

OWN, OWN_TITLE = "own", "a server on this machine, to try it out"
"""The answer for the IRC server that `terrarium up` brings along, and its title."""

QUESTIONS = {
    "model": "Model",
    "upstream": "or the address of a server: http://127.0.0.1:11434 for Ollama, or any with"
    " OpenAI's API",
    "model_key": "Its API key, if it needs one",
    "network": "Network",
    "server": "or another server: its host name, with :PORT if that is not the usual one",
    "tls": "Encrypt the connection (TLS)",
    "nick": "The bot's nick",
    "channels": "Channels",
    "admin": "Your services account there: you give the bot orders (empty: nobody does)",
    "password": "Password of the bot's account",
    "account": "Name of that account",
    "shown": "Show the pages to other machines, with a token",
}
"""The questions, as the wizard and the page ask them."""

_HEAD = """\
# Written by `terrarium init`. `terrarium config show` lists all keys with their values; a wrong one
# is reported by `terrarium config check`.
"""


MARK = "🤖 "
"""The default mark of answers that a model has written, on public networks."""


@dataclass(frozen=True, slots=True)
class PublicNetwork:
    """A network with its rules for bots, as lines for their owners.

    `login` is the setting for the password of the bot's account. TLS is on port 6697.
    """

    title: str
    server: str
    login: str
    register: str
    rules: tuple[str, ...]

    @property
    def advice(self) -> tuple[str, ...]:
        """The rules, and how to register the bot."""
        return (*self.rules, f"Its own account, if it has none yet: {self.register}")


_OPERATORS = "Ask the operators of each channel before the bot joins it."

PUBLIC_NETWORKS = {
    "libera": PublicNetwork(
        "Libera.Chat",
        "irc.libera.chat",
        "sasl_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (
            f"{_OPERATORS} Without their explicit permission it must not join.",
            "The bot must be recognisable as one, and say whose it is: keep `realname` and `mark`.",
            "What a model reads counts as publicly logged: the topic or the entry message must"
            " say so.",
            "Policy as of May 2026; the current one is at https://libera.chat/policies",
        ),
    ),
    "oftc": PublicNetwork(
        "OFTC",
        "irc.oftc.net",
        "nickserv_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (_OPERATORS, "The current rules are at https://www.oftc.net"),
    ),
    "hackint": PublicNetwork(
        "hackint",
        "irc.hackint.org",
        "sasl_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (
            f"{_OPERATORS} A public log needs the permission of the channel's owners.",
            "The current rules are at https://www.hackint.org",
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers so far, "" or None for those that are not given, which have a default.

    `model` is a name or a URL, `network` that of a public one, OWN or HOST[:PORT]; `token` is that
    of the pages, which only this machine may read without one.
    """

    model: str = ""
    model_key: str = ""
    network: str = ""
    tls: bool | None = None
    nick: str = ""
    channels: str = ""
    admin: str = ""
    password: str = ""
    account: str = ""
    token: str = ""

    @property
    def public(self) -> PublicNetwork | None:
        """The network, if it is a known one."""
        return PUBLIC_NETWORKS.get(self.network.lower())

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The tables of the file."""
        model = {} if self.model in ("", BUILT_IN) else {"path": self.model}
        if "://" in self.model:
            model = {"upstream": self.model}
            model |= {"upstream_key": self.model_key} if self.model_key else {}
        nick, irc, public = self.nick or "Terra", self._server(), self.public
        names = [name.strip() for name in (self.channels or "#terrarium").split(",")]
        irc |= {
            "nick": nick,
            "channels": [each if each[0] in "#&+!" else f"#{each}" for each in names if each],
        }
        if "server" in irc:
            if self.admin:
                irc["admins"] = [self.admin]
            if public:
                owner = f" of {self.admin}" if self.admin else ""
                irc |= {"realname": f"LLM bot{owner}; .help", "mark": MARK}
            login = public.login if public else "sasl_password"
            if self.password:
                irc[login] = self.password
                if login == "sasl_password":
                    irc |= {"sasl_username": self.account or nick, "sasl_required": True}
        web = {"host": "0.0.0.0", "token": self.token} if self.token else {}
        return {"model": model, "irc": irc, "web": web}

    def _server(self) -> dict[str, Any]:
        """Return the keys of [irc] that name a server, none for the embedded one."""
        if self.public:
            return {"server": self.public.server, "tls": True}
        if self.network.lower() in ("", OWN):
            return {}
        name, port = self.network, ""
        if name.count(":") == 1:
            name, _, port = name.partition(":")
        irc: dict[str, Any] = {"server": name}
        if port:
            irc["port"] = int(port) if port.isdecimal() else port
        return irc | {"tls": not is_loopback(name) if self.tls is None else self.tls}

    @property
    def notice(self) -> str:
        """A text for the entry message of the channel."""
        irc = self.tables["irc"]
        channel, admin = next(iter(irc["channels"]), "#channel"), self.admin or "..."
        return (
            f"/msg ChanServ SET {channel} ENTRYMSG {irc['nick']} is an LLM bot run by {admin}."
            " It reads and logs this channel; .nolog opts out, .help tells more."
        )

    @property
    def text(self) -> str:
        """The text of the file."""
        parts = [_HEAD]
        for name, values in self.tables.items():
            if values:
                # A JSON string, list, number or boolean is one of TOML, too, but for DEL.
                lines = [
                    f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
                    for key, value in values.items()
                ]
                parts.append("\n".join([f"\n[{name}]", *lines]) + "\n")
        return "".join(parts)

    def write(self, file: Path, *, replaces: bool = False) -> None:
        """Write the file, for its owner only. Raises TendrilError if it cannot be written, or if it
        exists and is not to be replaced."""
        try:
            if replaces:
                make_file(file)
            with open(file, "w" if replaces else "x", encoding="utf-8", opener=_open) as opened:
                opened.write(self.text)
        except FileExistsError as error:
            raise TendrilError(
                f"{file} exists already; remove it, or name another file with --config"
            ) from error
        except OSError as error:
            if not replaces:
                with suppress(OSError):
                    file.unlink()  # the part that fitted on the disk
            raise TendrilError(f"{file} cannot be written: {error}") from error


_open = partial(os.open, mode=0o600)


@cache
def models() -> Sequence[Mapping[str, Any]]:
    """Return the models of the catalogue that run well on this machine, as `terrarium model list
    --json` describes them, each with what to answer (`answer`) and a `row` for people."""
    defaults = Config({}, Path(os.devnull), Path("data"))  # not the file to be replaced
    command = command_line(defaults, "model", "list", "--json")
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    built_in = (BUILT_IN, "93 MB", "", "quotes the log, answers in a sentence")
    found = [{"answer": BUILT_IN, "row": built_in, "best": False}]
    for each in listed:
        if each["runs_well"]:
            answer = each["tier"] or each["name"]
            row = (
                answer,
                f"{each['size'] / 1e9:.1f} GB",
                f"reads {each['prompt_speed']:.0f} tokens/s",
                f"{each['can']}{' (the best here)' if each['best'] else ''}",
            )
            found.append({"answer": answer, "row": row, "best": each["best"]})
    return found
