"""`terrarium init`: a first configuration, by questions or by options."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from harnesses.irc.settings import networks
from harnesses.setup.answers import PUBLIC_NETWORKS, Answers
from harnesses.setup.trial import try_login
from terrarium.config import Config, load
from tests.kit.command import terrarium
from tests.kit.irc_client import irc_client
from tests.kit.ircd import ngircd
from tests.kit.ports import free_port
from tests.kit.services import services_network
from tests.kit.serving import serving
from tests.kit.terrarium import terrarium_up


def tables(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "terrarium.toml").read_text("utf-8"))


@pytest.mark.slow
async def test_after_init_with_yes_everything_starts_and_its_owner_is_admin(tmp_path: Path) -> None:
    done = await terrarium("init", "--yes", cwd=tmp_path)
    assert done.status == 0, done.err
    assert tables(tmp_path) == {"irc": {"nick": "Terra", "channels": ["#terrarium"]}}
    async with terrarium_up(tmp_path) as up, irc_client(up.irc_port, "ada") as ada:
        await ada.join("#terrarium")
        assert "line_budget" in await ada.told(".set line_budget 2")


async def test_the_answers_are_in_the_file_and_are_tried(tmp_path: Path) -> None:
    path = tmp_path / "terrarium.toml"
    path.write_text("[irc]\nnick = 1\n")  # invalid, and replaced
    async with ngircd() as ircd:
        answers = ("y", "built-in", f"127.0.0.1:{ircd.port}", "n", "no nick", "Fern",
                   "frogs, #pond", "alice", "", "y")  # fmt: skip
        done = await terrarium("init", cwd=tmp_path, said="\n".join(answers) + "\n")
    assert done.status == 0, done.err
    assert "nick: String should match" in done.err  # and is asked again
    assert "connected as Fern" in done.out
    assert "alice is not recognised as an admin: write a mask" in done.out  # ngIRCd has no accounts
    assert path.stat().st_mode & 0o077 == 0
    irc, web = (tables(tmp_path)[name] for name in ("irc", "web"))
    assert irc == {
        "server": "127.0.0.1",
        "port": ircd.port,
        "tls": False,
        "nick": "Fern",
        "channels": ["#frogs", "#pond"],
        "admins": ["alice"],
    }
    assert len(web["token"]) >= 32
    assert web["token"] not in done.out + done.err
    load(path, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said", "status", "words"),
    [(("--yes",), "", 1, "exists already"), ((), "n\n", 1, "Replace it?")],
)
async def test_an_existing_file_stays_unless_one_agrees(
    tmp_path: Path, arguments: tuple[str, ...], said: str, status: int, words: str
) -> None:
    (tmp_path / "terrarium.toml").write_text("# mine\n")
    done = await terrarium("init", *arguments, cwd=tmp_path, said=said)
    assert done.status == status
    assert words in done.out + done.err
    assert (tmp_path / "terrarium.toml").read_text() == "# mine\n"


@pytest.mark.parametrize("name", PUBLIC_NETWORKS)
def test_on_a_public_network_the_bot_says_whose_it_is(tmp_path: Path, name: str) -> None:
    answers = Answers(network=name, admin="alice")
    assert answers.public is PUBLIC_NETWORKS[name]
    (settings,) = networks(Config(tomllib.loads(answers.text), None, tmp_path)).values()
    assert (settings.server, settings.port, settings.tls) == (
        PUBLIC_NETWORKS[name].server,
        6697,
        True,
    )
    assert settings.realname == "LLM bot of alice; .help"
    assert settings.mark
    assert settings.admins == ("alice",)


async def test_a_login_is_tried_before_the_bot_needs_it(tmp_path: Path) -> None:
    async with services_network(tmp_path) as network, network.running():

        def settings(password: str) -> Any:
            irc = {
                "server": "127.0.0.1",
                "port": network.tls_port,
                "tls": True,
                "tls_verify": False,
                "sasl_username": "Account",
                "sasl_password": password,
            }
            return networks(Config({"irc": irc | {"sasl_required": True}}, None, tmp_path))["irc"]

        assert await try_login(settings("sesame")) == (
            "connected as Terra, logged in as Account",
            "",
        )
        reached, problem = await try_login(settings("wrong"))
        assert (reached, "not logged in by SASL" in problem) == ("", True)


async def test_a_server_that_is_not_there_is_a_reason_and_no_error(tmp_path: Path) -> None:
    irc = {"server": "127.0.0.1", "port": free_port()}
    settings = networks(Config({"irc": irc}, None, tmp_path))["irc"]
    reached, problem = await try_login(settings)
    assert (reached, "Connect call failed" in problem) == ("", True)


async def test_a_model_server_that_wants_a_key_is_named_with_what_to_set(tmp_path: Path) -> None:
    app = Starlette(routes=[Route("/v1/models", lambda _: Response(status_code=401))])
    async with serving(app) as url:
        done = await terrarium("init", "--yes", "--model", url, cwd=tmp_path)
    assert done.status == 0, done.err
    assert f"{url} requires a key; set MODEL_UPSTREAM_KEY" in done.out
