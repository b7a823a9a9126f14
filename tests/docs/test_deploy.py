"""docker-compose.yml and the files of deploy/ match the real commands, settings and paths."""

from __future__ import annotations

import configparser
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from harnesses.core.launcher.supervisor import EX_CONFIG
from tests.docs.reference import ROOT, all_variables
from tests.kit.ports import free_port
from tests.kit.programs import installed

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"] == "terrarium:latest"]
DOTENV = (ROOT / "deploy" / ".env.example").read_text(encoding="utf-8")
GLOBAL = {"TERRARIUM_LOG_LEVEL", "TERRARIUM_LOG_FORMAT", "TERRARIUM_SECRETS"}


def terrarium(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME")}
    return subprocess.run(
        [sys.executable, "-m", "harnesses.cli", *arguments],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def ran_commands() -> Iterator[list[str]]:
    """Yield every `terrarium` command that a container runs, including health checks."""
    for name in OURS:
        service = SERVICES[name]
        if "entrypoint" not in service:
            yield service["command"]
        check = service["healthcheck"]["test"]
        if check[:2] == ["CMD", "terrarium"]:
            yield check[2:]


def filled(value: object) -> str:
    """Return a value with variables substituted: secrets are set, others have their defaults."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))
    return re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", r"secret-\1", text)


def test_the_promised_services_are_there_and_restart_and_say_whether_they_are_well() -> None:
    optional = {"ngircd": ["ircd"], "proxy": ["proxy"], "vllm": ["gpu"]}
    assert set(SERVICES) == {"agent", "irc", "web", "cron", *optional}
    profiles = {name: each["profiles"] for name, each in SERVICES.items() if "profiles" in each}
    assert profiles == optional
    assert "\nCOMPOSE_PROFILES=ircd\n" in DOTENV
    for name, service in SERVICES.items():
        assert service["restart"] == "unless-stopped", name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["logging"]["options"]["max-size"], name


def test_our_containers_are_read_only_and_limited_and_no_secret_has_a_default() -> None:
    for name in OURS:
        service = SERVICES[name]
        assert service["read_only"] is True, name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
    assert "/ready" in " ".join(SERVICES["agent"]["healthcheck"]["test"])
    secrets = re.findall(r"\$\{\w*(?:KEY|TOKEN)\w*:-([^}]*)\}", TEXT)
    assert secrets
    assert not any(secrets)


def test_every_command_is_one_that_our_cli_takes() -> None:
    commands = list(ran_commands())
    tendrils = {command[1] for command in commands if command[0] == "run"}
    assert tendrils <= entry_points(group="terrarium.tendrils").names
    for command in {each[0]: each for each in commands}.values():
        done = terrarium(*command, "--help")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [name for name in OURS if "environment" in SERVICES[name]])
def test_every_variable_is_a_setting_and_its_value_fits(name: str) -> None:
    environment: dict[str, Any] = SERVICES[name]["environment"]
    assert set(environment) - GLOBAL <= all_variables()
    values = {key: filled(value) for key, value in environment.items()}
    done = terrarium("config", "check", "--config", "deploy/terrarium.toml", **values)
    assert done.returncode == 0, done.stderr


def test_the_file_decides_on_the_irc_server_unless_a_variable_does() -> None:
    environment: dict[str, Any] = SERVICES["irc"]["environment"]
    for given, server in (("", "ngircd"), ("irc.example.org", "irc.example.org")):
        values = {
            key: filled(re.sub(r"\$\{IRC_SERVER:-\}", given, str(value)))
            for key, value in environment.items()
        }
        done = terrarium("config", "show", "--config", "deploy/terrarium.toml", **values)
        assert f'server = "{server}"' in done.stdout


def test_the_systemd_unit_runs_our_command_and_leaves_a_wrong_configuration_alone() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "deploy" / "terrarium.service")
    program, *arguments = unit["Service"]["ExecStart"].split()
    assert program.endswith("/.venv/bin/terrarium")
    assert terrarium(*arguments, "--help").returncode == 0
    assert unit["Service"]["RestartPreventExitStatus"] == str(EX_CONFIG)


@pytest.mark.parametrize("unit", ["terrarium.service", "terrarium-backup.service"])
def test_a_unit_leaves_little_exposed_and_runs_a_command_of_ours(unit: str) -> None:
    command = [installed("systemd-analyze"), "security", "--offline=true", f"deploy/{unit}"]
    rated = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert found
    assert float(found[1]) < 3
    text = (ROOT / "deploy" / unit).read_text(encoding="utf-8")
    words = re.findall(r"^ExecStart=\S+ (.+)$", text, re.M)[0].split()
    assert terrarium(*words, "--help").returncode == 0


def test_what_is_mounted_built_and_copied_exists() -> None:
    build = {"context": ".", "dockerfile": "deploy/Dockerfile", "args": {"EXTRAS": "${EXTRAS:-}"}}
    assert COMPOSE["x-terrarium"]["build"] == build
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    copied = [
        word for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.M) for word in line.split()
    ]
    mounted = [
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
        if volume.startswith(".")
    ]
    assert len(copied) >= 8
    assert len(mounted) >= 4
    assert [path for path in copied + mounted if not (ROOT / path).exists()] == []


def test_the_image_holds_every_package_that_pip_would_install() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    for package in ("agent_server", "harnesses", "llm", "storage", "terrarium"):
        assert f"COPY {package} {package}\n" in dockerfile
        assert f"!{package}\n" in ignored


def test_nothing_is_named_that_is_not_declared() -> None:
    for name, service in SERVICES.items():
        assert set(service["networks"]) <= set(COMPOSE["networks"]), name
        assert set(service.get("depends_on", ())) <= set(SERVICES), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source.startswith("./") or source in COMPOSE["volumes"], volume


def test_only_the_web_and_irc_are_published_and_tendrils_only_reach_server_and_model() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.pop("proxy") == ["80:80", "443:443"]
    assert published == {"ngircd": ["127.0.0.1:6667:6667"], "web": ["127.0.0.1:8081:8081"]}
    inside = {name for name, service in SERVICES.items() if "mind" in service["networks"]}
    assert inside == {"agent", "irc", "web", "cron", "vllm"}
    assert COMPOSE["networks"]["mind"] == {"internal": True}


def test_each_service_has_a_key_of_its_own_and_none_the_admins() -> None:
    known = json.loads(filled(SERVICES["agent"]["environment"]["SERVER_KEYS"]))
    environments = {name: SERVICES[name]["environment"] for name in ("irc", "web", "cron")}
    assert known == {name: filled(each["AGENT_API_KEY"]) for name, each in environments.items()}
    assert len(set(known.values())) == 3
    for each in environments.values():
        assert "SERVER_" not in str(each)
    assert not [each for each in known.values() if each in filled(SERVICES["vllm"])]


def test_the_example_of_secrets_names_each_variable_of_the_compose_file() -> None:
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", TEXT))
    assert set(re.findall(r"^(\w+)=", DOTENV, re.M)) == used | {"COMPOSE_PROFILES"}


def test_ngircd_takes_its_configuration_without_complaint() -> None:
    done = subprocess.run(
        [installed("ngircd"), "--configtest", "--config", ROOT / "deploy" / "ngircd.conf"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0
    assert not re.findall(r"^ - .*", done.stdout, re.M)
    assert "Name = #terrarium" in done.stdout


@pytest.mark.parametrize(
    ("toml", "status"),
    [
        ('[up]\ntendrils = ["irc"]\n[irc]\nserver = "x"', 0),
        ('[up]\ntendrils = "irc"\nirc_port = 1\n[irc]\nserver = "x"', 0),
        ("server = 3\nirc = 3\nup = 3\nweb = 3", 78),
        ("[up]\ntendrils = 3", 0),
        ("", 78),
    ],
)
def test_only_ports_that_will_be_needed_have_to_be_free(
    toml: str, status: int, tmp_path: Path
) -> None:
    (tmp_path / "terrarium.toml").write_text(toml)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"WEB_PORT": str(taken.getsockname()[1]), "SERVER_PORT": str(free_port())}
        done = subprocess.run(
            [sys.executable, str(ROOT / "deploy" / "check_ports.py")],
            cwd=tmp_path,
            env=ports | {"UP_IRC_PORT": str(free_port())},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (status, False)
    assert ("WEB_PORT" in done.stderr) == bool(status)
