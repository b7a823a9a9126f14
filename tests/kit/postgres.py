"""Real PostgreSQL server on a Unix socket in a temporary folder, one per test process.

PostgreSQL refuses to run as root, so root runs it as the user created by Debian's package.
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
from storage.db.postgres.connection import PostgresConnection, adapt
from storage.db.postgres.schemas import migrate
from tests.kit.patience import PATIENCE

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "panic",
}
_TEMPLATE, _FILLED = "terrarium_template", "terrarium_filled"
_FOLDERS = Path("/usr/lib/postgresql")
_FIRST_OWN = 16_384  # FirstNormalObjectId: system catalogs have lower file numbers
_number = count(1)


class PostgresServer:
    """A server with a new cluster in `folder`; stop it before the folder is deleted.

    `durable` enables fsync, which only tests with crashes need.
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
        """Start the server, also after a kill, and wait until it accepts connections.

        A `hidden` server listens on another socket, at `hidden_url`, where clients do not find it.
        """
        settings = self._settings
        if hidden:
            settings = settings | {"unix_socket_directories": str(self.folder / "data")}
        # A stale postmaster.pid of a killed server does not prevent a start.
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
        """The process id of the postmaster."""
        return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL, like a crash."""
        server = psutil.Process(self.pid)
        server.suspend()  # so that it cannot fork while its children are listed
        processes = [*server.children(), server]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        # A new server refuses to start while one of them still uses the shared memory.
        _, left = psutil.wait_procs(processes, timeout=PATIENCE)
        assert not left

    def stop(self) -> None:
        """Stop the server with an immediate shutdown; do nothing if it is not running."""
        with suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "stop", "--wait", "--silent", "--mode=immediate")

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://terrarium@/{database}?host={self.folder}"

    def hidden_url(self, database: str) -> str:
        """Return the URL of a database of a hidden server."""
        return f"{self.url(database)}/data"

    def create(self, name: str, template: str = "template0") -> str:
        """Create a database and return its URL."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8' LOCALE 'C'".encode()
            )
        return self.url(name)


def binaries() -> Path:
    """Return the folder of the newest server's programs; skip the test if there is none."""
    found = sorted(_FOLDERS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    if program := shutil.which("initdb"):
        return Path(program).parent
    pytest.skip("PostgreSQL is not installed")


def _unprivileged() -> str | None:
    """Return the user to run the server as, None for the current one (unless that is root)."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextmanager
def postgres_server(*, durable: bool = True) -> Iterator[PostgresServer]:
    """Run a separate server, which may be killed; stop it and delete its folder on exit."""
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
    folder = tempfile.TemporaryDirectory(prefix="pg-")  # kept until the process exits
    server = PostgresServer(Path(folder.name))
    server.start()
    # atexit runs in reverse order: the server stops before its folder is deleted.
    atexit.register(folder.cleanup)
    atexit.register(server.stop)
    url = server.create(_TEMPLATE)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION citext")
        connection.execute("CREATE EXTENSION pg_trgm")
    # Most tests use a store called "irc": to copy its tables is faster than to create them.
    address = PostgresSchema(server.create(_FILLED, _TEMPLATE), "irc")
    with psycopg.connect(address.url, autocommit=True) as raw:
        adapt(raw)
        raw.execute("CREATE SCHEMA terrarium_irc")
        raw.execute("SET search_path = terrarium_irc, public")
        migrate(PostgresConnection(raw), address)
    return server


def postgres_database() -> str:
    """Create an empty database on the shared server and return its URL."""
    return _shared().create(f"test_{next(_number)}", _TEMPLATE)


class PostgresStores:
    """Stores as schemas of a new PostgreSQL database, in which "irc" has its empty tables."""

    def __init__(self, _: Path) -> None:
        self.url = _shared().create(f"test_{next(_number)}", _FILLED)
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
        # Without the system catalogs, whose many words would be found by accident.
        return b"".join(
            path.read_bytes()
            for path in sorted(folder.iterdir())
            if (number := re.match(r"\d+", path.name)) and int(number[0]) >= _FIRST_OWN
        )
