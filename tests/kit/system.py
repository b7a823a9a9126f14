"""Dependencies of tests outside Python: system programs and the default model.

`python -m tests.kit.system` is the first step of `make test`. As root it installs missing programs
with apt; otherwise it names them. It always succeeds: tests skip if their program is missing. The
model is downloaded here, before parallel tests need it at the same time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_server.errors import PullError
from agent_server.model_files import store as model_store
from agent_server.settings.models import ModelSettings
from terrarium.config import Config

NEEDED = {
    "ngircd": "tests on ngircd, a plain IRC server",
    "inspircd": "tests on InspIRCd, an IRC server with the IRCv3 extensions",
    "atheme-services": "tests of logging in to an IRC network's services",
    "znc": "tests behind ZNC, a bouncer",
    "bip": "tests behind bip, a bouncer that knows no capabilities",
    "prosody": "tests of the XMPP example on a real server",
    "postgresql": "tests of storage on PostgreSQL",
    "chromium": "tests of the web pages in a browser",
}
_SBIN = "/usr/sbin:/usr/local/sbin"  # has IRC servers, but is not in users' PATH
_PROGRAMS = {"postgresql": "pg_createcluster"}  # if a package has no program of its name
_POLICY = Path("/usr/sbin/policy-rc.d")
_APT = ("apt-get", "-q", "-o", "Acquire::Retries=2", "-o", "DPkg::Lock::Timeout=120")


def missing() -> list[str]:
    """Return the packages of `NEEDED` whose programs are not installed."""
    path = f"{os.environ.get('PATH', '')}:{_SBIN}"
    return [name for name in NEEDED if shutil.which(_PROGRAMS.get(name, name), path=path) is None]


def main() -> None:
    """Install missing programs if possible, print which tests will be skipped, fetch the model."""
    wanted = missing()
    if shutil.which("apt-get") is None:
        reason = "this system has no apt-get"
    elif os.geteuid() != 0:
        reason = "only root may install"
    elif wanted:
        _say(f"installing {', '.join(wanted)} by apt-get ...")
        with _services_off():
            updated = _run(*_APT, "update")
            for name in wanted:  # separately: apt installs nothing if one name is unknown
                _run(*_APT, "install", "-y", "--no-install-recommends", name)
        reason = f"apt-get could not {'install it' if updated else 'reach its packages'}"
    for name in missing():
        _say(f"{name} is not installed ({reason}): skipping {NEEDED[name]}")
    try:
        model_store.ensure(Config({}, None, Path("data")).section(ModelSettings))
    except PullError as error:
        _say(f"tests of the real model will fail: {error}")


def _run(*command: str) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        _say(done.stderr.strip() or f"{command[0]} failed")
    return done.returncode == 0


@contextmanager
def _services_off() -> Iterator[None]:
    """Keep Debian from starting servers while their packages are installed.

    Uses policy-rc.d, whose exit status 101 forbids an action; an existing one is left alone.
    """
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def _say(text: str) -> None:
    print(f"tests: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
