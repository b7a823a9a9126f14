"""What `terrarium doctor` says of the MCP servers of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from harnesses.core.launcher.doctor import check_mcp_servers
from harnesses.core.tendril.status import StatusFile
from terrarium.config import Config
from tests.kit.command import terrarium

SERVERS = {name: {"command": ["server"], "tendrils": ["irc", "web"]} for name in ("time", "git")}


def test_a_server_that_a_tendril_cannot_reach_is_named_with_the_reason(tmp_path: Path) -> None:
    config = Config({"mcp": {"servers": SERVERS}}, None, tmp_path)
    assert [found.text for found in check_mcp_servers(config)] == [
        "no tendril that may use it runs"
    ] * 2
    irc, web = StatusFile(tmp_path, "irc"), StatusFile(tmp_path, "web")
    irc.mcp_troubles = lambda: {"time": "it has ended; its last words: no zone"}
    irc.ready()
    web.ready()
    time, git = check_mcp_servers(config)
    assert (time.what, time.ok) == ("mcp time", False)
    assert time.text == "not connected to irc: it has ended; its last words: no zone"
    assert (git.what, git.ok, git.text) == ("mcp git", True, "used by irc, web")


@pytest.mark.process
async def test_the_doctor_says_how_to_install_the_sdk_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    (tmp_path / "terrarium.toml").write_text(
        '[mcp.servers.time]\ncommand = ["server"]\ntendrils = ["irc"]\n'
    )
    done = await terrarium("doctor", "--data", ".", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert "time, which needs the extra: pip install 'terrarium[mcp]'" in done.out
