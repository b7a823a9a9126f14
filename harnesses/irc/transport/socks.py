"""SOCKS5 (RFC 1928), with a user name and password if the proxy asks for them (RFC 1929)."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import unquote, urlsplit

_VERSION, _NO_LOGIN, _PASSWORD, _CONNECT, _NAME = 5, 0, 2, 1, 3
_ADDRESS_SIZES = {1: 4, 4: 16}  # of IPv4 and IPv6
_REFUSALS = {
    1: "general failure",
    2: "not allowed",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
}


async def connect(proxy: str, host: str, port: int, bind: str | None = None) -> socket.socket:
    """Return a socket that is connected to `host` through a `proxy`, "[user:password@]host:port".

    The proxy looks up the host. Raises OSError.
    """
    where, loop = urlsplit(f"//{proxy}"), asyncio.get_running_loop()
    found = await loop.getaddrinfo(where.hostname, where.port or 1080, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        if bind:
            connection.bind((bind, 0))
        await loop.sock_connect(connection, address)
        login = b""  # the request of RFC 1929
        if where.username:
            words = [
                unquote(word).encode()[:255] for word in (where.username, where.password or "")
            ]
            login = b"\x01" + b"".join(bytes([len(word)]) + word for word in words)
        await _negotiate(connection, login, host, port)
    except BaseException:
        connection.close()
        raise
    return connection


async def _negotiate(connection: socket.socket, login: bytes, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    methods = bytes([_NO_LOGIN, _PASSWORD] if login else [_NO_LOGIN])
    await loop.sock_sendall(connection, bytes([_VERSION, len(methods)]) + methods)
    _, method = await _read(connection, 2)
    if method == _PASSWORD and login:
        await loop.sock_sendall(connection, login)
        if (await _read(connection, 2))[1]:
            raise ConnectionRefusedError("the SOCKS5 proxy refuses the login")
    elif method != _NO_LOGIN:
        raise ConnectionRefusedError("the SOCKS5 proxy asks for a login")
    name = host.encode("idna")
    request = bytes([_VERSION, _CONNECT, 0, _NAME, len(name)]) + name
    await loop.sock_sendall(connection, request + port.to_bytes(2, "big"))
    _, reply, _, kind = await _read(connection, 4)
    if reply:
        why = _REFUSALS.get(reply, f"error {reply}")
        raise ConnectionRefusedError(f"the SOCKS5 proxy says: {why}")
    size = _ADDRESS_SIZES.get(kind) or (await _read(connection, 1))[0]
    await _read(connection, size + 2)  # the address that it connects from


async def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await asyncio.get_running_loop().sock_recv(connection, size - len(data))
        if not piece:
            raise ConnectionAbortedError("the SOCKS5 proxy has closed the connection")
        data += piece
    return data
