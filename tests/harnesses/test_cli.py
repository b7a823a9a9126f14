"""The real command line: its help, its answers, and one clear line for whatever is wrong."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from harnesses.core.tendril.status import ProcessState, StatusFile
from storage.chat_log.event import Event, EventType
from storage.db.database import Database
from storage.log import ChatLog
from tests.kit.command import Done, terrarium
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.ports import free_port
from tests.kit.serving import serving


def one_line(done: Done, status: int, *words: str) -> None:
    """The command failed with `status`, and said so in one line that has all `words`."""
    assert done.status == status, done
    assert done.err.count("\n") == 1, done.err
    for word in words:
        assert word in done.err


async def said(data: Path, *lines: tuple[str, str, str]) -> None:
    """Put lines (channel, nick, text) into the log; a channel without # is a private talk."""
    async with Database.open(data / "irc.db") as database, ChatLog.open(database) as log:
        for channel, nick, text in lines:
            event = Event(
                network="irc",
                channel=channel,
                type=EventType.PRIVMSG,
                time=datetime.now(UTC),
                nick=nick,
                text=text,
            )
            await log.append(event)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", ("up", "run", "chat", "doctor", "config", "logs", "server", "model", "--log-level")),
        ("up", ("ready", "Ctrl-C", "--config", "--data")),
        ("run", ("NAME", "irc, web, cron", "--config", "--data")),
        ("doctor", ("Exit status 1", "--config", "--data")),
        ("config show", ("secrets", "--config", "--data")),
        ("logs search", ("QUERY", "--channel", "--nick", "--hours", "--limit", "--data")),
        ("model pull", ("--sha256", "--config", "--data")),
    ],
)
async def test_help_tells_how_to_use_a_command(
    command: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    done = await terrarium(*command.split(), "--help", cwd=tmp_path)
    assert done.status == 0, done.err
    for word in words:
        assert word in " ".join(done.out.split())


async def test_the_version_is_told_and_of_an_unknown_command_the_nearest(tmp_path: Path) -> None:
    done = await terrarium("--version", cwd=tmp_path)
    assert (done.status, done.out.split()[0]) == (0, "terrarium")
    done = await terrarium("modle", cwd=tmp_path)
    assert (done.status, "model" in done.err) == (2, True)


@pytest.mark.parametrize("command", ["up", "run web", "chat"])
async def test_an_unknown_key_names_key_file_and_nearest_key(command: str, tmp_path: Path) -> None:
    (tmp_path / "terrarium.toml").write_text("[irc]\nprot = 6667\n")
    done = await terrarium(*command.split(), cwd=tmp_path)
    one_line(done, 78, '"prot"', "[irc]", "terrarium.toml", '"port"')


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("up --config mine.toml", 78, ("mine.toml", "not valid TOML", "line 2")),
        ("run web", 78, ("WEB_PORT", "integer")),
        ("run NOPE", 1, ('"NOPE"', "cron, irc, web")),
        ("logs stats --data .", 78, ("irc.db", "database")),
        ("logs search x --data nowhere", 1, ("nowhere/irc.db", "terrarium up")),
    ],
)
async def test_what_is_wrong_is_named_in_one_line(
    command: str, status: int, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text("[irc]\nnick = Terra\n")
    (tmp_path / "irc.db").write_bytes(b"not a database at all, but long enough to be read as one")
    settings = {"WEB_PORT": "eighty"} if "WEB_PORT" in words else {}
    one_line(await terrarium(*command.split(), cwd=tmp_path, **settings), status, *words)
    assert not (tmp_path / "nowhere").exists()


async def test_config_show_hides_secrets_and_tells_where_values_are_from(tmp_path: Path) -> None:
    (tmp_path / "terrarium.toml").write_text('[web]\ntoken = "hunter2"\n[server]\nport = 9000\n')
    done = await terrarium("config", "show", cwd=tmp_path, SERVER_ADMIN_KEY="hunter3")
    assert done.status == 0, done.err
    assert "hunter" not in done.out + done.err
    for line in (
        'token = "***"  # terrarium.toml',
        'admin_key = "***"  # SERVER_ADMIN_KEY',
        "port = 9000  # terrarium.toml",
        'host = "127.0.0.1"  # default',
    ):
        assert line in done.out.splitlines()


async def test_config_check_says_that_all_is_right(tmp_path: Path) -> None:
    (tmp_path / "terrarium.toml").write_text("[server]\nport = 9000\n")
    done = await terrarium("config", "check", cwd=tmp_path)
    assert (done.status, done.out) == (0, "terrarium.toml is valid\n")


async def test_logs_are_searched_by_word_channel_nick_and_number(tmp_path: Path) -> None:
    await said(
        tmp_path,
        ("#a", "ada", "the kernel panics"),
        ("#a", "bob", "which kernel? \x1b[2J"),
        ("#b", "ada", "my kernel is fine"),
        ("eve", "eve", "the kernel, in private"),
    )

    async def found(*more: str) -> list[str]:
        done = await terrarium("logs", "search", "kernel", "--data", ".", *more, cwd=tmp_path)
        assert done.status == 0, done.err
        return [line.split("] ")[1] for line in done.out.splitlines()]

    everything, by_channel, by_nick, newest = await asyncio.gather(
        found(), found("--channel", "irc/#a"), found("--nick", "ada"), found("--limit", "1")
    )
    assert everything == [
        "<ada> the kernel panics",
        "<bob> which kernel? \ufffd[2J",
        "<ada> my kernel is fine",
    ]
    assert by_channel == everything[:2]
    assert by_nick == [everything[0], everything[2]]
    assert newest == everything[2:]


async def test_log_stats_count_lines_people_and_the_most_talkative(tmp_path: Path) -> None:
    await said(tmp_path, ("#a", "ada", "one"), ("#a", "ada", "two"), ("#a", "bob", "three"))
    done = await terrarium("logs", "stats", "--data", ".", cwd=tmp_path)
    assert done.out.splitlines()[0] == "3 lines by 2 people"
    assert [line.split() for line in done.out.splitlines()[2:]] == [["2", "ada"], ["1", "bob"]]


async def test_doctor_on_an_empty_machine_says_what_to_do(tmp_path: Path) -> None:
    ports = {"SERVER_PORT": str(free_port()), "UP_IRC_PORT": str(free_port())}
    done = await terrarium("doctor", cwd=tmp_path, MODEL_PATH="absent.gguf", **ports)
    assert done.status == 1
    lines = {line.split()[1]: line for line in done.out.splitlines()}
    assert lines["python"].startswith("ok ")
    assert lines["data"].startswith("ok ")
    assert "MODEL_PATH" in lines["model"]
    assert ports["SERVER_PORT"] in lines["server"]
    assert "terrarium up" in lines["server"]
    assert "terrarium run web" in lines["web"]


async def test_doctor_says_that_a_key_is_refused(tmp_path: Path) -> None:
    async def guarded(request: Request) -> Response:
        if request.url.path != "/ready" and request.headers.get("authorization") != "Bearer right":
            return JSONResponse({"error": {"message": "no"}}, 401)
        return JSONResponse({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async with serving(
        Starlette(routes=[Route("/{path:path}", guarded, methods=["GET", "POST"])])
    ) as url:
        for key, wanted in (
            ("", "requires a key; set"),
            ("wrong", "rejects the key; correct"),
            ("right", ""),
        ):
            model = {"MODEL_UPSTREAM": url, "MODEL_UPSTREAM_KEY": key}
            agent = {"AGENT_API_URL": url, "AGENT_API_KEY": key}
            done = await terrarium("doctor", cwd=tmp_path, **model, **agent)
            lines = {line.split()[1]: line for line in done.out.splitlines()}
            for line, variable in (("model", "MODEL_UPSTREAM_KEY"), ("server", "AGENT_API_KEY")):
                assert lines[line].startswith("problem " if wanted else "ok ")
                assert wanted in lines[line]
                assert (variable in lines[line]) == bool(wanted)
            assert "wrong" not in done.out


async def test_doctor_of_one_process_goes_by_its_word(tmp_path: Path) -> None:
    async def asked() -> Done:
        return await terrarium("doctor", "irc", "--data", ".", cwd=tmp_path)

    status = StatusFile(tmp_path, "irc")
    assert (await asked()).status == 1
    status.ready("Terra on #terrarium")
    well = await asked()
    assert (well.status, well.out) == (0, "ok       irc  Terra on #terrarium\n")
    status.waiting("not yet on irc")
    assert (await asked()).out == "problem  irc  not yet on irc\n"
    status.report(ProcessState.STOPPED)
    assert "it was stopped" in (await asked()).out


async def test_chat_answers_remembers_and_forgets(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:

        async def talk(said: str) -> str:
            done = await terrarium(
                "chat", "--data", ".", cwd=tmp_path, said=said, AGENT_API_URL=script.url
            )
            assert done.status == 0, done.err
            return done.out

        script.say("Hello \x1b[2Jthere.").say("Ada.")
        assert await talk("my name is Ada\nwho am I?\n") == "Hello \ufffd[2Jthere.\nAda.\n"
        script.say("Ada still.")
        assert await talk("and now?") == "Ada still.\n"
        contents = [message["content"] for message in script.requests[-1]["messages"]]
        assert any("my name is Ada" in content for content in contents)
        helped, _, cleared = (await talk("/help\n/clear\n/quit\nnot asked\n")).rpartition(
            "Forgotten"
        )
        assert ".clear" in helped
        assert cleared == ": our conversation of 3 turns.\n"
        assert len(script.requests) == 3


async def test_chat_without_a_server_says_so_in_a_sentence(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = await terrarium("chat", "--data", ".", cwd=tmp_path, said="hi\n", AGENT_API_URL=url)
    assert done.out == "My model is not reachable at the moment; please ask again in a minute.\n"
