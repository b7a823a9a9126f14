"""What `terrarium config show` shows of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from harnesses.core.effective import ConfigEntry, config_entries
from terrarium.config import load

EVERYTHING = """
[server]
port = 9000
admin_key = "hunter2-admin"
keys = { irc = "hunter2-irc" }
[model]
upstream = "https://user:hunter2-url@models.example/v1?key=hunter2-query"
[web]
token = "hunter2-token"
[irc]
channels = ["#open", "#closed hunter2-channel"]
[irc.networks.libera]
server = "irc.libera.example"
password = "hunter2-server"
nickserv_password = "hunter2-nickserv"
socks5 = "me:hunter2-proxy@127.0.0.1:9050"
perform = ["PRIVMSG Q :AUTH me hunter2-auth"]
[cron.jobs.daily]
schedule = "0 9 * * *"
prompt = "Sum up."
deliver = "https://hooks.example/hunter2-webhook"
"""


def shown(folder: Path, text: str) -> dict[str, ConfigEntry]:
    file = folder / "terrarium.toml"
    file.write_text(text)
    return {f"{v.table}.{v.key}": v for v in config_entries(load(file, folder))}


def test_no_secret_is_shown_wherever_it_stands(tmp_path: Path) -> None:
    values = shown(tmp_path, EVERYTHING)
    assert "hunter2" not in " ".join(value.text for value in values.values())
    assert values["server.admin_key"].text == values["web.token"].text == '"***"'
    assert values["model.upstream"].text == '["https://***@models.example/v1?***"]'
    assert values["irc.channels"].text == '["#open", "#closed ***"]'
    assert values["irc.networks.libera.server"].text == '"irc.libera.example"'
    assert values["cron.jobs.daily.prompt"].text == '"Sum up."'
    assert values["cron.jobs.daily.deliver"].text == '"***"'


def test_a_value_says_where_it_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "web_token").write_text("hunter2")
    monkeypatch.setenv("TERRARIUM_SECRETS", str(secrets))
    monkeypatch.setenv("WEB_PORT", "9001")
    values = shown(tmp_path, "[server]\nport = 9000\n")
    origins = {key: values[key].origin for key in ("server.port", "web.port", "web.token")}
    assert origins == {
        "server.port": str(tmp_path / "terrarium.toml"),
        "web.port": "WEB_PORT",
        "web.token": str(secrets / "web_token"),
    }
    assert values["server.host"] == ConfigEntry("server", "host", '"127.0.0.1"', "default")
    assert values["model.path"].text == ""
