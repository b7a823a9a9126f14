"""Generator of the settings reference from the `Settings` classes.

`python -m tests.docs.reference` writes terrarium.example.toml and the tables in
docs/configuration.md; a test fails if they are out of date.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from terrarium.config import Settings, sections

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "terrarium.example.toml"
CONFIGURATION = ROOT / "docs" / "configuration.md"

ORDER = [
    "model",
    "server",
    "usage",
    "agent",
    "pages",
    "storage",
    "up",
    "irc",
    "web",
    "cron",
    "mcp",
]

# Examples for keys that have no default, or a computed one.
_SHOWN = {
    "agent.api_key": '"..."',
    "agent.attention": "{ mention = 1.5, job = 1 }",
    "agent.max_tokens": "4000",
    "agent.personas": '{ irc = "persona.md" }',
    "agent.timezone": '"Europe/Vienna"',
    "irc.bind": '"192.0.2.7"',
    "irc.nickserv_mask": '"NickServ!*@services.example.org"',
    "irc.nickserv_password": '"..."',
    "irc.password": '"..."',
    "irc.persona": '"terra.md"',
    "irc.port": "6667",
    "irc.sasl_key": '"/etc/terrarium/ecdsa.pem"',
    "irc.sasl_password": '"..."',
    "irc.sasl_username": '"Terra"',
    "irc.socks5": '"127.0.0.1:9050"',
    "irc.server": '"irc.example.org"',
    "irc.tls_cert": '"/etc/terrarium/irc.pem"',
    "model.aliases": '{ fast = "terra", smart = ["big", "terra"] }',
    "model.cache_dir": '"/var/cache/terrarium"',
    "model.context": "16384",
    "model.max_tokens": "4096",
    "model.slots": "4",
    "model.path": '"/models/model.gguf"',
    "model.temperature": "0.7",
    "model.threads": "4",
    "model.tools": '"constrained"',
    "model.chooses_tools": "true",
    "model.embeddings": "true",
    "model.profile": '"capable"',
    "model.reasoning": "true",
    "model.upstream_key": '"..."',
    "model.upstream_model": '"..."',
    "model.vision": "true",
    "server.admin_key": '"a-long-secret"',
    "server.keys": '{ letters = "another-long-secret" }',
    "storage.channel_retention_days": '{ "#frogs" = 30 }',
    "storage.url": '"postgresql://terrarium@localhost/terrarium"',
    "storage.db_path": '"/var/lib/terrarium/irc.db"',
    "web.proxies": '["127.0.0.1"]',
    "web.public_url": '"https://logs.example.org"',
    "web.token": '"a-long-secret"',
}

_HEAD = """\
# Terrarium's configuration: copy it to terrarium.toml and take the # away from what you change.
#
# Each key is shown with its default; one that has none, or a default that is worked out, shows an
# example. Every key can also be set by an environment variable, which wins: [server] port is
# SERVER_PORT. An unknown key is an error. `terrarium config show` prints what is in effect.
"""

# Examples of subtables, which stand below the other keys of their table.
_EXTRA = {
    "irc.networks": """
# Several networks, each with the network's keys of [irc]; [irc]'s own network then does not count.
#[irc.networks.libera]
#server = "irc.libera.chat"
#tls = true
#channels = ["#terrarium", "#secret its-key"]
""",
    "model.models": """
# More models; clients ask for them by name, for "openai:gpt-5" by an upstream's own name, and for
# the aliases above.
#[model.models.big]
#upstream = "http://192.0.2.7:8000, http://192.0.2.8:8000"
#[model.models.openai]
#upstream = "https://api.openai.com"
#upstream_key = "..."
#[model.models.anthropic]
#api = "anthropic"
#upstream_key = "..."
""",
    "mcp.servers": """
# MCP servers whose tools the model may use: a program that is started, or an address.
#[mcp.servers.time]
#command = ["uvx", "mcp-server-time"]
#tendrils = ["irc", "web"]
#reads = ["*"]
#[mcp.servers.tickets]
#url = "https://tickets.example.org/mcp"
#token = "..."
#tendrils = ["irc"]
#tools = ["search_*", "create_ticket"]
#reads = ["search_*"]
#needs = "operate"
#timeout = 60
""",
    "cron.jobs": """
# Every morning at nine, what was said in #terrarium on the day before. The keys of a job are
# described in docs/configuration.md.
#[cron.jobs.digest]
#schedule = "0 9 * * *"
#timezone = "Europe/Vienna"
#log = "#terrarium"
#hours = 24
#prompt = "Sum up in at most six short lines what was talked about, decided and left open."
#deliver = "#terrarium"
""",
    "usage.prices": """
# What a million tokens of a model cost, by the name that clients ask for.
#[usage.prices.terra]
#prompt = 0.15
#cached = 0.05
#completion = 0.6
""",
    "usage.budgets": """
# What may be used until midnight UTC: by each person, and by all of a model that costs money.
#[usage.budgets.people]
#per = "person"
#tokens_per_day = 50000
#[usage.budgets.money]
#model = "terra"
#cost_per_day = 1.5
""",
    "irc.channel": """
# What differs on a channel; "*" is every channel of the network.
#[irc.channel."#terrarium"]
#command_prefix = "!"
#persona = "You are $nick, a patient tutor on $channel. You answer with a question."
""",
    "web.tokens": """
# A token for some channels only: whoever has it sees no other.
#[web.tokens.guests]
#token = "another-long-secret"
#channels = ["irc/#terrarium"]
#say = false
""",
    "web.accounts": """
# A person who signs in by name, with a token of their own.
#[web.accounts.ada]
#token = "a-long-secret-of-hers"
#admin = true
#identities = ["irc/ada"]
""",
}


def tables() -> dict[str, type[Settings]]:
    """Return the settings of all installed packages by table, ours first, in reading order."""
    known = sections()
    return {name: known[name] for name in (*ORDER, *sorted(set(known) - set(ORDER)))}


def example() -> str:
    """Return the text of terrarium.example.toml."""
    parts = [_HEAD]
    for name, kind in tables().items():
        parts.append("\n".join([f"\n# {_about(kind)}", f"[{name}]", *_keys(name, kind)]) + "\n")
    return "".join(parts)


def configuration() -> str:
    """Return the generated section of docs/configuration.md."""
    parts: list[str] = []
    for name, kind in tables().items():
        parts += [f"## [{name}]", _about(kind), _table(name, kind.model_fields)]
        for key, field in kind.model_fields.items():
            # A key that holds subtables has their model as the last argument of its type.
            model = next(reversed(get_args(field.annotation)), None)
            if isinstance(model, type) and issubclass(model, BaseModel):
                parts += [f"### [{name}.{key}.NAME]", _about(model), _table("", model.model_fields)]
    return "\n\n".join(parts)


def documented(text: str) -> str:
    """Return the text of docs/configuration.md with its generated section replaced."""
    return replaced(text, "reference", configuration())


def replaced(text: str, name: str, section: str) -> str:
    """Return the text of a document with the section between the comments with `name` replaced."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{section}\n\n{end}{after}"


def all_variables() -> set[str]:
    """Return the environment variables of all settings."""
    return {
        variable
        for table, kind in tables().items()
        for key, field in kind.model_fields.items()
        for variable in variables(table, key, field)
    }


def variables(table: str, key: str, field: FieldInfo) -> Sequence[str]:
    """Return the environment variables of a key."""
    alias = field.validation_alias
    names = alias.choices if isinstance(alias, AliasChoices) else [f"{table}_{key}"]
    return [str(name).upper() for name in names]


def _keys(table: str, kind: type[Settings]) -> Iterator[str]:
    for key, field in kind.model_fields.items():
        where = f"{table}.{key}"
        if where in _EXTRA:
            continue
        shown = _SHOWN.get(where) or _toml(_default(field))
        text = field.description or ""
        says_default = "by default" in text or field.default_factory is not None
        if where in _SHOWN and not says_default:
            text += " (by default none)"
        yield from ("", *(f"# {line}" for line in textwrap.wrap(text, 96)), f"#{key} = {shown}")
    for key in kind.model_fields:  # in TOML, a subtable ends the keys of its parent
        if extra := _EXTRA.get(f"{table}.{key}"):
            yield extra.rstrip()


def _table(table: str, fields: Mapping[str, FieldInfo]) -> str:
    """Return a Markdown table of keys; without a `table` they have no environment variables."""
    head = "| key | variable | default | meaning |" if table else "| key | default | meaning |"
    rows = [head, "|---" * (head.count("|") - 1) + "|"]
    for key, field in fields.items():
        cells = [f"`{key}`"]
        if table:
            cells.append(", ".join(f"`{name}`" for name in variables(table, key, field)))
        cells += [_shown_default(field), (field.description or "").replace("|", "\\|")]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _shown_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return ""
    value = _default(field)
    return "none" if value is None else f"`{_toml(value)}`"


def _default(field: FieldInfo) -> Any:
    return None if field.default is PydanticUndefined else field.default


def _toml(value: object) -> str:
    """Return a value in TOML syntax. Raises TypeError for an unsupported type."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Enum | Path):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) and value.is_integer() else repr(value)
    raise TypeError(f"no TOML for {value!r}: say in _SHOWN what the example shows")


def _about(kind: type[BaseModel]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def main() -> None:
    """Regenerate both files."""
    EXAMPLE.write_text(example(), encoding="utf-8")
    text = CONFIGURATION.read_text(encoding="utf-8")
    CONFIGURATION.write_text(documented(text), encoding="utf-8")


if __name__ == "__main__":
    main()
