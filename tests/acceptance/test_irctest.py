"""irctest, the conformance tests of IRC software, where its source is at hand.

`IRCTEST=/path/to/irctest` names a checkout of https://github.com/progval/irctest. What its cases
for clients ask is asked by our own tests too (tests/harnesses/irc/test_run.py).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.reference import ROOT

FEWEST = 19
"""Cases for clients that must pass; one more is skipped where the package ecdsa is missing."""

WITHIN = 800
"""Seconds for all of them."""

CONTROLLER = """\
import json
import sys

from irctest import tls
from irctest.basecontrollers import BaseClientController, DirectoryBasedController


class TerrariumController(BaseClientController, DirectoryBasedController):
    software_name = "Terrarium"
    supported_sasl_mechanisms = {"PLAIN", "ECDSA-NIST256P-CHALLENGE", "SCRAM-SHA-256", "EXTERNAL"}
    supports_sts = True

    def run(self, hostname, port, auth, tls_config=None):
        self.create_config()
        trust = tls_config or tls.TlsConfig(enable=False, trusted_fingerprints=[])
        irc = {
            "server": hostname,
            "port": port,
            "tls": trust.enable,
            "tls_fingerprints": trust.trusted_fingerprints,
        }
        if auth:
            irc["sasl"] = [each.to_string() for each in auth.mechanisms]
            irc["sasl_username"] = auth.username or ""
            if auth.password:
                irc["sasl_password"] = auth.password
            if auth.ecdsa_key:
                irc["sasl_key"] = auth.ecdsa_key
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in irc.items()]
        with self.open_file("terrarium.toml", "w") as file:
            file.write("[agent]\\napi_url = \\"http://127.0.0.1:9\\"\\n[irc]\\n")
            file.write("\\n".join(lines))
        folder = str(self.directory)
        command = [sys.executable, "-m", "harnesses.cli", "run", "irc", "--config"]
        self.proc = self.execute([*command, f"{folder}/terrarium.toml", "--data", f"{folder}/data"])


def get_irctest_controller_class():
    return TerrariumController
"""


@pytest.mark.process
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_every_case_of_irctest_for_clients_passes(tmp_path: Path) -> None:
    source = os.environ.get("IRCTEST")
    if not source:
        pytest.skip("IRCTEST names no checkout of irctest")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which irctest makes its certificates with")
    (tmp_path / "terrarium_controller.py").write_text(CONTROLLER)
    path = os.pathsep.join((str(tmp_path), source, str(ROOT)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("--controller", "terrarium_controller", "irctest/client_tests"),
        cwd=source,
        env=os.environ | {"PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(WITHIN):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = out.decode(errors="replace")
    passed = re.search(r"(\d+) passed", said)
    assert process.returncode == 0, said[-4000:]
    assert passed
    assert int(passed[1]) >= FEWEST, said[-2000:]
