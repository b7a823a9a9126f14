"""What `terrarium up` decides to run, out of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harnesses.core.addresses import url, with_agent_address
from harnesses.core.launcher.plan import LaunchPlan
from harnesses.core.launcher.up import banner
from llm.client.settings import AgentSettings
from terrarium.config import Config, ConfigError


def config(**tables: dict[str, Any]) -> Config:
    return Config(tables, Path("terrarium.toml"), Path("data"))


def names(plan: LaunchPlan) -> list[str]:
    return [program.name for program in plan.programs]


def environment(plan: LaunchPlan, name: str) -> dict[str, str]:
    return dict(next(p.environment for p in plan.programs if p.name == name))


def agent(**tables: dict[str, Any]) -> AgentSettings:
    return with_agent_address(config(**tables)).section(AgentSettings)


def test_by_default_everything_runs_here_else_the_tendrils_that_are_named_and_what_they_need() -> (
    None
):
    plan = LaunchPlan.from_config(config())
    assert names(plan) == ["server", "ircd", "irc", "web", "cron"]
    assert environment(plan, "irc") == {
        "SERVER_PORT": "8080",
        "WEB_PORT": "8081",
        "IRC_SERVER": "127.0.0.1",
        "IRC_PORT": "6667",
    }
    assert plan.pull is not None
    assert plan.pull.command[-4:] == ("--data", "data", "--config", "terrarium.toml")
    plan = LaunchPlan.from_config(config(up={"tendrils": ["web"]}))
    assert names(plan) == ["server", "web"]
    assert [need.variable for need in plan.ports] == ["SERVER_PORT", "WEB_PORT"]
    assert "IRC" not in banner(plan)


@pytest.mark.parametrize(
    ("irc", "port"),
    [
        ({"server": "irc.example.org"}, 6667),
        ({"server": "irc.example.org", "tls": True}, 6697),
        ({"networks": {"oftc": {"server": "irc.example.org"}}}, 6667),
    ],
)
def test_no_irc_server_of_our_own_when_one_is_named_also_in_the_environment(
    irc: dict[str, Any], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = LaunchPlan.from_config(config(irc=irc))
    assert "ircd" not in names(plan)
    assert "IRC_SERVER" not in environment(plan, "irc")
    assert plan.endpoint
    found = plan.endpoint.host, plan.endpoint.port, plan.endpoint.embedded
    assert found == ("irc.example.org", port, False)
    monkeypatch.setenv("IRC_SERVER", "irc.example.org")
    assert "ircd" not in names(LaunchPlan.from_config(config()))


def test_a_name_that_no_tendril_or_no_model_has_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigError, match=r'"wbe".*cron, irc, web'):
        LaunchPlan.from_config(config(up={"tendrils": "irc, wbe"}))
    with pytest.raises(ConfigError, match='the nearest is "medium"'):
        LaunchPlan.from_config(config(model={"path": "medum"}))


@pytest.mark.parametrize("model", [{"path": "m.gguf"}, {"upstream": "http://127.0.0.1:1"}])
def test_no_model_is_fetched_when_one_is_named(model: dict[str, Any]) -> None:
    assert LaunchPlan.from_config(config(model=model)).pull is None


@pytest.mark.server
def test_a_port_of_0_becomes_a_free_one_that_all_are_told() -> None:
    plan = LaunchPlan.from_config(config(server={"port": 0}, web={"port": 0}, up={"irc_port": 0}))
    told = environment(plan, "web")
    ports = {told["SERVER_PORT"], told["WEB_PORT"], told["IRC_PORT"]}
    assert len(ports) == 3
    assert "0" not in ports
    assert plan.server == f"http://127.0.0.1:{told['SERVER_PORT']}"


def test_the_welcome_is_one_line_that_begins_with_ready_and_then_what_to_type() -> None:
    lines = banner(
        LaunchPlan.from_config(config(irc={"channels": ["#den key"], "command_prefix": "!"}))
    )
    first, *rest = lines.splitlines()
    assert first.startswith("ready ")
    for address in ("http://127.0.0.1:8080", "http://127.0.0.1:8081", "127.0.0.1:6667"):
        assert address in first
    assert any(line.endswith("irssi -c 127.0.0.1") for line in rest)
    assert any(line.endswith("/join #den") for line in rest)
    assert any(line.endswith("!terrarium what is the capital of France?") for line in rest)
    elsewhere = config(irc={"server": "irc.example.org", "tls": True})
    assert "/connect -tls irc.example.org 6697\n" in banner(LaunchPlan.from_config(elsewhere))
    assert "irssi -c 127.0.0.1 -p 7000" in banner(
        LaunchPlan.from_config(config(up={"irc_port": 7000}))
    )


def test_commands_of_the_owner_ask_the_server_of_the_same_file_and_no_other_with_its_key() -> None:
    found = agent(server={"host": "0.0.0.0", "port": 9000, "admin_key": "k"})
    assert found.api_url == "http://127.0.0.1:9000"
    assert found.api_key is not None
    assert found.api_key.get_secret_value() == "k"
    found = agent(server={"admin_key": "k"}, agent={"api_url": "http://elsewhere.example"})
    assert (found.api_url, found.api_key) == ("http://elsewhere.example", None)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("::", "http://[::1]:1"), ("::1", "http://[::1]:1"), ("box.example", "http://box.example:1")],
)
def test_an_address_to_listen_on_becomes_one_to_connect_to(host: str, expected: str) -> None:
    assert url(host, 1) == expected


@pytest.mark.parametrize("name", ["small", "qwen3-4b"])
def test_a_model_of_the_catalogue_is_fetched_by_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_PATH", name)
    plan = LaunchPlan.from_config(config())
    assert plan.model.startswith("qwen3")
    assert plan.pull is not None
    assert plan.later is not None
    assert " model pull --data" in " ".join(plan.pull.command), "the built-in one, first"
    assert f" model pull {plan.model} " in " ".join(plan.later.command)
    assert "--stand-in" in plan.programs[0].command


def test_a_model_that_is_here_is_not_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MODEL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MODEL_PATH", "small")
    missing = LaunchPlan.from_config(config())
    assert missing.later
    (tmp_path / "Qwen3-0.6B-Q8_0.gguf").write_bytes(b"GGUF")
    plan = LaunchPlan.from_config(config())
    assert (plan.pull, plan.later, plan.model) == (None, None, "")
    assert "--stand-in" not in plan.programs[0].command
