"""Safe page fetcher: public addresses only, bounded, and obeying robots.txt.

The host is resolved once, and the connection goes to the address that was checked, so DNS rebinding
has no effect. Every redirect is checked like a new URL. Redirects, sizes and times are bounded
here, not by the HTTP client.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import httpx2

from llm.web.addresses import AddressPolicy, Endpoint, Resolve, is_address, is_host_name, resolve
from llm.web.errors import ExtraMissing, PageRefused, PageUnreadable

AGENT = "Terrarium"
"""Product token of this crawler, which robots.txt files match (RFC 9309)."""

TEXT_MEDIA_TYPES = frozenset(
    (
        *("text/html", "application/xhtml+xml", "text/plain", "text/markdown", "text/x-markdown"),
        *("application/json", "application/xml", "text/xml", "application/ld+json"),
        *("application/rss+xml", "application/atom+xml", "application/feed+json"),
    )
)

IMAGE_MEDIA_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))

_MAX_ROBOTS_SIZE = 500 * 1024  # bytes that are read, at least, by RFC 9309, section 2.5
_MAX_ADDRESSES = 3  # addresses of a host that are tried
_CACHE_SIZE = 64  # pages and robots.txt files
_CACHE_SECONDS = 600.0  # seconds that they are cached
_MAX_CONCURRENT = 4  # concurrent fetches
_MAX_URL_LENGTH = 2_000
_MAX_REDIRECTS = 5
_HEADERS = {
    "User-Agent": f"Mozilla/5.0 (compatible; {AGENT}/1; reads a page that somebody asked about)",
    "Accept": "text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
    "Accept-Encoding": "gzip",
    "Connection": "close",
}
_ODD = re.compile(r"[\s\\\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one fetch: `size` in bytes, before and after decompression, `time` in seconds from
    the first DNS query to the last byte. A larger page is refused or, with `cuts`, truncated."""

    size: int = 2_000_000
    time: float = 15.0
    cuts: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page: `url` is the one after all redirects, `type` the media type in lower case."""

    url: str
    type: str
    charset: str
    body: bytes

    @property
    def text(self) -> str:
        """The decoded body; invalid bytes are replaced."""
        try:
            return self.body.decode(self.charset or "utf-8", errors="replace")
        except LookupError:  # a charset that does not exist
            return self.body.decode("utf-8", errors="replace")


_trusted_certificates = cache(ssl.create_default_context)  # takes 20 ms, so once and when needed


@dataclass(frozen=True, slots=True)
class _Target:
    """A URL that was checked, the host name in it, and the checked endpoints to connect to."""

    url: httpx2.URL
    host: str
    endpoints: Sequence[Endpoint]


class Fetcher:
    """Fetcher with a cache, for addresses by `policy` and `resolver`; `tls`: whom it trusts."""

    def __init__(
        self,
        policy: AddressPolicy | None = None,
        resolver: Resolve = resolve,
        limits: FetchLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._policy, self._resolve = policy or AddressPolicy(), resolver
        self._limits = limits or FetchLimits()
        self._tls = tls
        # Pages by URL and parsed robots.txt files by (origin,), valid until a time of the loop.
        self._cache: OrderedDict[str | tuple[str], tuple[Any, float]] = OrderedDict()
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def fetch(
        self, url: str, types: frozenset[str] = TEXT_MEDIA_TYPES, *, is_api: bool = False
    ) -> Page:
        """Return the page of a URL, cached for ten minutes, if its media type is in `types`.

        For a documented API (`is_api`), robots.txt is ignored. Raises PageError.
        """
        key = url.partition("#")[0]
        known: Page | None = self._cached(key)
        if known and known.type in types:
            return known
        try:
            # In this order: waiting for a slot does not count towards the time limit.
            async with self._slots, asyncio.timeout(self._limits.time):
                page = await self._follow(url, types, asks_robots=not is_api)
        except TimeoutError as error:
            raise PageUnreadable(
                f"the page did not come within {self._limits.time:g} seconds"
            ) from error
        self._keep(key, page)
        return page

    async def _follow(self, url: str, types: frozenset[str], *, asks_robots: bool) -> Page:
        """Request a URL, follow its redirects and read the page. Raises PageError."""
        for _ in range(_MAX_REDIRECTS + 1):
            target = await self._check(url)
            rules = await self._rules(target) if asks_robots else None
            if rules and not rules.can_fetch(str(target.url), AGENT):
                raise PageRefused(f"the robots.txt of {target.host} asks programs to stay away")
            async with self._request(target) as response:
                if response.has_redirect_location:
                    url = _join(target.url, response.headers["location"])
                    continue
                if not response.is_success:
                    raise PageUnreadable(f"the server answered {response.status_code}")
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind.startswith("image/") and kind not in types:
                    raise PageUnreadable("it is a picture, and pictures cannot be looked at here")
                if kind not in types:
                    raise PageRefused(f"it is {kind[:60] or 'of no type'}, which is not read here")
                body = await _decode(response, self._limits.size, cuts=self._limits.cuts)
                return Page(str(target.url), kind, response.charset_encoding or "", body)
        raise PageRefused(f"it redirects more than {_MAX_REDIRECTS} times")

    async def _rules(self, target: _Target) -> Any:
        """Return the parsed robots.txt of a host, None if everything is allowed.

        As RFC 9309 says, that is so if there is none (4xx); nothing is allowed while the server
        fails (5xx). Raises PageError.
        """
        origin = str(target.url.copy_with(raw_path=b"/robots.txt", fragment=None))
        if known := self._cached((origin,)):
            return known[0]
        at, rules = replace(target, url=httpx2.URL(origin)), None
        for _ in range(_MAX_REDIRECTS + 1):
            async with self._request(at) as response:
                if response.has_redirect_location:
                    # Checked like any redirect, or robots.txt could lead to an internal address.
                    at = await self._check(_join(at.url, response.headers["location"]))
                    continue
                if response.status_code >= 500:
                    raise PageUnreadable(f"the robots.txt of {target.host} cannot be read")
                if response.is_success:
                    text = await _decode(response, _MAX_ROBOTS_SIZE, cuts=True)
                    try:
                        from protego import Protego
                    except ImportError as error:
                        raise ExtraMissing from error
                    rules = Protego.parse(text.decode("utf-8", errors="replace"))
                break
        # After too many redirects, a robots.txt counts as missing (RFC 9309, section 2.3.1.2).
        self._keep((origin,), (rules,))
        return rules

    async def _check(self, url: str) -> _Target:
        """Validate a URL, an absolute one without credentials, and resolve its host, whose
        addresses must all be public. Raises PageError."""
        if len(url) > _MAX_URL_LENGTH:
            raise PageRefused(f"its address has more than {_MAX_URL_LENGTH} characters")
        # Parsers disagree about the host in URLs with whitespace or backslashes.
        if _ODD.search(url):
            raise PageRefused("its address has a blank or a backslash in it")
        try:
            parsed = httpx2.URL(url)
            host = parsed.raw_host.decode("ascii")
        except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
            raise PageRefused("that is no address of a page") from error
        if parsed.scheme not in ("http", "https"):
            raise PageRefused("only http and https pages are read")
        if parsed.userinfo:
            raise PageRefused("its address has a name or a password in it")
        if not host:
            raise PageRefused("its address has no host")
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        # Other ports belong to other services, which a request could disturb.
        if self._policy.ports is not None and port not in self._policy.ports:
            raise PageRefused(f"port {port} is none that pages come from")
        if is_address(host):
            endpoints: Sequence[Endpoint] = (Endpoint(host, port),)
        elif is_host_name(host):
            try:
                endpoints = await self._resolve(host, port)
            except (OSError, UnicodeError) as error:
                raise PageUnreadable(f"there is no host {host}") from error
        else:
            raise PageRefused("its host is no public name")
        # All of them: a name with both public and internal addresses is an attack or a mistake.
        if not all(self._policy.is_public(each.address) for each in endpoints):
            raise PageRefused("its address is not one of the public internet")
        return _Target(parsed, host, endpoints)

    @asynccontextmanager
    async def _request(self, target: _Target) -> AsyncIterator[httpx2.Response]:
        """Yield the response of the first endpoint that answers. Raises PageUnreadable."""
        # No proxies from the environment: a proxy would resolve the host again, unchecked.
        tls = self._tls or _trusted_certificates()
        client = httpx2.AsyncClient(verify=tls, trust_env=False, timeout=self._limits.time)
        tried = target.endpoints[:_MAX_ADDRESSES]
        async with client:
            try:
                for endpoint in tried:
                    # The URL has the address, so that nothing is resolved again between check and
                    # connection (DNS rebinding). TLS verifies the certificate against the name.
                    request = client.build_request(
                        "GET",
                        target.url.copy_with(
                            host=endpoint.address, port=endpoint.port, fragment=None
                        ),
                        headers={**_HEADERS, "Host": target.url.netloc.decode("ascii")},
                        extensions={"sni_hostname": target.host},
                    )
                    try:
                        response = await client.send(request, stream=True)
                        break
                    except (httpx2.ConnectError, httpx2.ConnectTimeout):
                        if endpoint is tried[-1]:
                            raise
                else:
                    raise PageUnreadable(f"there is no host {target.host}")
                try:
                    yield response
                finally:
                    await response.aclose()
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                reason = type(error).__name__
                raise PageUnreadable(f"{target.host} did not answer ({reason})") from error

    def _cached(self, key: str | tuple[str]) -> Any:
        value, until = self._cache.get(key, (None, 0.0))
        if until < asyncio.get_running_loop().time():
            return None
        self._cache.move_to_end(key)
        return value

    def _keep(self, key: str | tuple[str], value: object) -> None:
        self._cache[key] = value, asyncio.get_running_loop().time() + _CACHE_SECONDS
        while len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)


def _join(url: httpx2.URL, location: str) -> str:
    """Return the absolute URL of a redirect. Raises PageRefused."""
    try:
        return str(url.join(location))
    except (httpx2.InvalidURL, ValueError) as error:
        raise PageRefused("it redirects to no address of a page") from error


async def _decode(response: httpx2.Response, limit: int, *, cuts: bool = False) -> bytes:
    """Return the decompressed body, at most `limit` bytes. One that is longer, compressed or not,
    is truncated if `cuts`, else refused. Raises PageRefused and PageUnreadable."""
    # Decompressed here, with bounded output: httpx would expand a decompression bomb in memory.
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip"):
        raise PageRefused("its compression is not known here")
    gunzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if "gzip" in encoding else None
    body, sent = bytearray(), 0
    async for chunk in response.aiter_raw():
        sent += len(chunk)
        try:
            body += gunzip.decompress(chunk, limit + 1) if gunzip else chunk
        except zlib.error as error:
            raise PageUnreadable("its compression is broken") from error
        if sent > limit or len(body) > limit:
            if cuts:
                break
            raise PageRefused(f"it is larger than {limit / 1e6:g} MB")
    return bytes(body[:limit])
