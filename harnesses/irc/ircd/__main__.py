"""Terrarium's embedded IRC server."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import sys
from collections.abc import Sequence

from harnesses.irc.ircd.server import Client, Server
from terrarium.supervision import told_to_stop


async def serve(host: str, port: int) -> None:
    """Serve until told to stop. Raises OSError."""
    ircd = Server()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Client(ircd), host, port)
    await told_to_stop()
    listener.close()
    for client in list(ircd.clients):
        client.end("The server is stopping")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harnesses.irc.ircd", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=6667, help="port to listen on")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(serve(options.host, options.port))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "is already in use" if taken else f"cannot be listened on ({error.strerror})"
        sys.stderr.write(
            f"IRC: {options.host} port {options.port} {why}; choose another port with "
            "UP_IRC_PORT=NUMBER or with irc_port in [up] of terrarium.toml\n"
        )
        return os.EX_CONFIG
    return 0


if __name__ == "__main__":
    sys.exit(main())
