"""Listening TCP sockets."""

from __future__ import annotations

import socket

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host` and `port` (0: any free one). Raises OSError.

    The protocol is set explicitly, unlike in `socket.create_server`: asyncio sets TCP_NODELAY only
    on sockets whose protocol is IPPROTO_TCP. Without it the second piece of a streamed answer waits
    40 ms for the acknowledgement of the first (Nagle's algorithm and delayed ACKs).
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # no wait after a restart
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
