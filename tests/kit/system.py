"""What tests use from outside Python: programs, installed by apt as root or named, and the model.

`python -m tests.kit.system` is the first step of `make test`. It always succeeds: a test whose
program is missing skips and says so. The model is pulled before many tests want it at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
_SBIN = "/usr/sbin:/usr/local/sbin"  # where IRC servers are, and people's PATH is not
_PROGRAMS = {"postgresql": "pg_createcluster"}  # of packages without one of their name
_POLICY = Path("/usr/sbin/policy-rc.d")
_APT = ("apt-get", "-q", "-o", "Acquire::Retries=2", "-o", "DPkg::Lock::Timeout=120")


def missing() -> list[str]:
    """The programs of `NEEDED` that are not installed."""
    path = f"{os.environ.get('PATH', '')}:{_SBIN}"
    return [name for name in NEEDED if shutil.which(_PROGRAMS.get(name, name), path=path) is None]


def obstacle() -> str | None:
    """Why programs cannot be installed here, or None when they can."""
    if shutil.which("apt-get") is None:
        return "this system has no apt-get"
    return None if os.geteuid() == 0 else "only root may install"


def main() -> None:
    """Install what is missing if we may, and say which tests will be skipped."""
    wanted = missing()
    reason = obstacle()
    if wanted and reason is None:
        _say(f"installing {', '.join(wanted)} by apt-get ...")
        reason = _install(wanted)
    for name in missing():
        _say(f"{name} is not installed ({reason}): skipping {NEEDED[name]}")
    try:
        model_store.ensure(Config({}, None, Path("data")).section(ModelSettings))
    except PullError as error:
        _say(f"tests of the real model will fail: {error}")


def _install(names: Sequence[str]) -> str:
    """Install packages of these names; returns the reason should one be missing after it."""
    with _services_off():
        updated = _run(*_APT, "update")
        for name in names:  # one by one: a name that a distribution lacks must not stop the others
            _run(*_APT, "install", "-y", "--no-install-recommends", name)
    return "apt-get could not install it" if updated else "apt-get could not reach its packages"


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
    """Debian starts a server when it is installed; a test suite must not leave one running."""
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
