"""Exit with 78 and a line of advice if a port that `terrarium up` needs is taken.

`make up` runs it before anything is installed, so it needs the standard library alone.
terrarium.toml and the environment choose the ports as they do for `terrarium up`.
"""

import os
import socket
import sys
import tomllib
from pathlib import Path

PORTS = (("server", "port", 8080), ("web", "port", 8081), ("up", "irc_port", 6667))


def main() -> int:
    """Check each port on loopback by listening on it for a moment; return the exit status."""
    try:
        tables = tomllib.loads(Path("terrarium.toml").read_text("utf-8"))
    except (OSError, ValueError):  # `terrarium up` reports what is wrong with it
        tables = {}
    # `terrarium up` reports a value that should be a table, too.
    tables = {name: each for name, each in tables.items() if isinstance(each, dict)}
    irc, up = tables.get("irc", {}), tables.get("up", {})
    wanted = os.environ.get("UP_TENDRILS") or up.get("tendrils", "irc,web")
    named = wanted.split(",") if isinstance(wanted, str) else wanted
    tendrils = [str(each).strip() for each in named] if isinstance(named, list) else []
    has_network = any((os.environ.get("IRC_SERVER"), irc.get("server"), irc.get("networks")))
    listening = {"server", *tendrils}
    if "irc" in tendrils and not has_network:
        listening.add("up")
    for table, key, default in PORTS:
        if table not in listening:
            continue
        variable = f"{table}_{key}".upper()
        port = os.environ.get(variable) or tables.get(table, {}).get(key, default)
        if not str(port).isdecimal():  # `terrarium up` says what is wrong with it
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", int(port)))
                probe.listen()
            except (OSError, OverflowError):
                print(
                    f"make: port {port} is taken by another program; choose another with "
                    f"{variable}=PORT or `[{table}] {key}` in terrarium.toml",
                    file=sys.stderr,
                )
                return 78
    return 0


if __name__ == "__main__":
    sys.exit(main())
