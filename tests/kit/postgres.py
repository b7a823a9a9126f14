"""A real PostgreSQL server on a Unix socket in a temporary folder, one for a process of tests.

It refuses to run as root, so root runs it as the user that Debian's package has made.
"""

from __future__ import annotations

import atexit
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

import psutil
import psycopg
import pytest

from storage.db.address import PostgresSchema
from tests.kit.patience import PATIENCE

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "panic",
}
_TEMPLATE = "terrarium_template"
_FOLDERS = Path("/usr/lib/postgresql")
_FIRST_OWN = 16_384  # number of a file that is not of the system itself
_number = count(1)


class PostgresServer:
    """A server with an empty cluster in `folder`, which it does not outlive.

    `durable` has it fsync as one in use does; tests that crash nothing need not wait for that.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self._binaries = binaries()
        self._user = _unprivileged()
        self._settings = _SETTINGS | {"unix_socket_directories": str(folder)}
        if not durable:
            self._settings |= {"fsync": "off", "full_page_writes": "off"}
        self._process: subprocess.Popen[bytes] | None = None
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "--no-sync", "--auth=trust", "--username=terrarium", "--locale=C")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), "-D", str(self.folder / "data"), *arguments]
        options = ["--encoding=UTF8"] if program == "initdb" else []
        subprocess.run(
            [*command, *options],
            user=self._user,
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def start(self, *, hidden: bool = False) -> None:
        """Start the server, and wait until it answers; also after it was killed.

        A `hidden` one listens where its clients do not look, at the address `hidden_url`.
        """
        settings = self._settings
        if hidden:
            settings = settings | {"unix_socket_directories": str(self.folder / "data")}
        # What was killed with -9 leaves its file behind; its children notice and end by themselves.
        self._run(
            "pg_ctl",
            "start",
            "--wait",
            "--silent",
            f"--timeout={int(PATIENCE)}",
            f"--log={self.folder / 'log'}",
            "--options=" + " ".join(f"-c {key}='{value}'" for key, value in settings.items()),
        )

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    def kill(self) -> None:
        """End the server and all its processes as a crash would."""
        server = psutil.Process(self.pid)
        server.suspend()  # it has no more children while we look
        processes = [*server.children(), server]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        # As long as one of them is there a new server refuses to start.
        _, left = psutil.wait_procs(processes, timeout=PATIENCE)
        assert not left

    def stop(self) -> None:
        """Stop the server at once."""
        with suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "stop", "--wait", "--silent", "--mode=immediate")

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://terrarium@/{database}?host={self.folder}"

    def hidden_url(self, database: str) -> str:
        """Return the URL of a database while the server is hidden."""
        return f"{self.url(database)}/data"

    def create(self, name: str, template: str = "template0") -> str:
        """Create a database and return its URL."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8' LOCALE 'C'".encode()
            )
        return self.url(name)


def binaries() -> Path:
    """Return the folder of the server's programs, or skip the test."""
    found = sorted(_FOLDERS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    if program := shutil.which("initdb"):
        return Path(program).parent
    pytest.skip("PostgreSQL is not installed")


def _unprivileged() -> str | None:
    """Return the user that the server runs as: ourselves, or another one for root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextmanager
def postgres_server(*, durable: bool = True) -> Iterator[PostgresServer]:
    """Run a server of one's own, which may be killed; it and its folder are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        server = PostgresServer(Path(name), durable=durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@cache
def _shared() -> PostgresServer:
    """Start the server that all tests of this process share."""
    folder = tempfile.TemporaryDirectory(prefix="pg-")  # as long as we do
    server = PostgresServer(Path(folder.name))
    server.start()
    atexit.register(folder.cleanup)
    atexit.register(server.stop)
    url = server.create(_TEMPLATE)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION citext")
        connection.execute("CREATE EXTENSION pg_trgm")
    return server


def postgres_database() -> str:
    """Return the URL of an empty database."""
    return _shared().create(f"test_{next(_number)}", _TEMPLATE)


class PostgresStores:
    """Addresses in an empty database of PostgreSQL."""

    def __init__(self, _: Path) -> None:
        self.url = postgres_database()
        self.place = self("irc")

    def __call__(self, name: str) -> PostgresSchema:
        """Return the address of the store called `name`."""
        return PostgresSchema(self.url, name)

    def raw(self) -> bytes:
        """Return all bytes of the files of the database, but not of the server's write-ahead
        log."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            row = connection.execute(
                "SELECT oid FROM pg_database WHERE datname = current_database()"
            ).fetchone()
        assert row is not None
        folder = _shared().folder / "data" / "base" / str(row[0])
        # The system's tables, which have the names of all languages and more, have lower numbers.
        return b"".join(
            path.read_bytes()
            for path in sorted(folder.iterdir())
            if (number := re.match(r"\d+", path.name)) and int(number[0]) >= _FIRST_OWN
        )
