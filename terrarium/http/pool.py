"""A pool of keep-alive connections to one base URL."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from terrarium.config import ConfigError
from terrarium.http.connection import ConnectionBroken, HttpConnection
from terrarium.loopback import is_loopback

CONNECT = 5.0
"""Seconds to open a connection."""

IDLE = 15.0
"""Seconds that a connection is kept without a request."""

PORTS = {"http": 80, "https": 443}

_NONE: Mapping[str, str] = {}


class ConnectFailed(Exception):
    """No connection can be opened."""


class ConnectionPool:
    """Sends requests to `url`, all with `headers`. `patience` with a silent server and with one
    that is to `connect` is in seconds; `proxied`: by way of the proxy that the environment names.

    Raises ConfigError for headers that HTTP cannot carry.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        patience: float,
        connect: float = CONNECT,
        keep_alive: bool = True,
        proxied: bool = True,
    ) -> None:
        self._to = to = urlsplit(url)
        self._proxy = _proxy(to) if proxied else None
        self._patience, self._connect = patience, connect
        self._keep_alive = keep_alive
        self._tls = ssl.create_default_context() if to.scheme == "https" else None
        own = {"host": _host(to), **_basic("authorization", to)}
        self._base = quote(to.path, safe="/%:@!$&'()*+,;=-._~")
        if self._proxy and not self._tls:
            self._base = f"http://{_host(to)}{self._base}"
            own |= _basic("proxy-authorization", self._proxy)
        self._headers = _lines({**own, **headers})
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._closed: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<ConnectionPool {self.origin}, {len(self._open)} open, {self.idle} idle>"

    @property
    def origin(self) -> str:
        """Scheme, host and port of the server, without a user name or a password."""
        return f"{self._to.scheme}://{_host(self._to)}"

    @property
    def idle(self) -> int:
        """The number of idle connections."""
        return len(self._idle)

    async def ask(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str] = _NONE
    ) -> HttpConnection:
        """Send a request with `headers` of its own; the connection that has the beginning of its
        answer.

        Raises ConnectFailed, ConnectionBroken, TimeoutError; ConfigError as above.
        """
        body = content or b""
        size = b"content-length: %d\r\n" % len(body) if content is not None else b""
        line = f"{method} {self._base}{path} HTTP/1.1\r\n".encode()
        own = _lines(headers) if headers else b""
        request = b"".join((line, self._headers, own, size, b"\r\n", body))
        if self._idle:
            connection = self._idle.pop()
            try:
                return await self._begin(connection, request)
            except ConnectionBroken:
                # The engine had closed it meanwhile: llama.cpp does so after each stream, though
                # it advertises keep-alive.
                if not connection.no_bytes_received:
                    raise
        return await self._begin(await self._open_connection(), request)

    async def close(self) -> None:
        """Close all connections."""
        if self._open:
            self._closed = asyncio.get_running_loop().create_future()
            for connection in self._open:
                connection.abort()
            await self._closed
            self._closed = None

    async def _begin(self, connection: HttpConnection, request: bytes) -> HttpConnection:
        try:
            await connection.begin(request, self._patience)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _open_connection(self) -> HttpConnection:
        try:
            async with asyncio.timeout(self._connect):
                if self._proxy:
                    return await self._connect_proxy(self._proxy)
                return await self._to_host(self._to, self._tls)
        # A TimeoutError is an OSError too; of an address that is none it is a ValueError.
        except (OSError, ValueError, ConnectionBroken) as error:
            raise ConnectFailed(type(error).__name__) from error

    async def _to_host(self, where: SplitResult, tls: ssl.SSLContext | None) -> HttpConnection:
        port = where.port or PORTS.get(where.scheme)
        if port is None:
            raise ValueError(f"{where.scheme}: is no HTTP")
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._on_idle, self._on_lost),
            where.hostname or "",
            port,
            ssl=tls,
        )
        self._open.add(connection)
        return connection

    async def _connect_proxy(self, proxy: SplitResult) -> HttpConnection:
        """Open a connection through a proxy; with TLS it is a tunnel that the proxy cannot read."""
        connection = await self._to_host(proxy, None)
        if self._tls is None:
            return connection
        try:
            target = f"{self._to.hostname}:{self._to.port or PORTS['https']}"
            headers = _lines({"host": target, **_basic("proxy-authorization", proxy)})
            request = f"CONNECT {target} HTTP/1.1\r\n".encode() + headers + b"\r\n"
            transport = await connection.tunnel(request, CONNECT)
            upgraded = await asyncio.get_running_loop().start_tls(
                transport, connection, self._tls, server_hostname=self._to.hostname
            )
            assert upgraded is not None
            connection.carry_on(upgraded)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _on_idle(self, connection: HttpConnection) -> None:
        if self._keep_alive and self._closed is None:
            connection.expire_after(IDLE)
            self._idle.append(connection)
        else:
            connection.abort()

    def _on_lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._closed and not self._open and not self._closed.done():
            self._closed.set_result(None)


def _proxy(to: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names; loopback addresses never use one."""
    host, proxies = to.hostname or "", getproxies()
    if is_loopback(host) or proxy_bypass(host):
        return None
    named = proxies.get(to.scheme) or proxies.get("all")
    if not named:
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ConfigError(f"the proxy for {host} is no http:// URL; see {to.scheme}_proxy")
    return proxy


def _host(url: SplitResult) -> str:
    """Return the Host header: address and port, without user and password."""
    host = url.netloc.rpartition("@")[2]
    return host if host.isascii() else host.encode("idna").decode()


def _basic(name: str, url: SplitResult) -> dict[str, str]:
    """Return the header for the user and password in a URL, if there are any."""
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {name: f"Basic {b64encode(pair.encode()).decode()}"}


def _lines(headers: Mapping[str, str]) -> bytes:
    for name, value in headers.items():
        if not value.isprintable() or not value.isascii():
            raise ConfigError(f"what is sent as {name} has characters that HTTP cannot carry")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
