"""Bearer tokens, their scopes, the logins that browsers get for them, and the delays after wrong
ones."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.settings import WebSettings, place_of
from storage.chat_log.event import PUBLIC, Place, Scope
from storage.usage.web_logins import LIFETIME, WebLogins
from terrarium.config import GOOD_SECRET_LENGTH

COOKIE = "terrarium_login"

THRESHOLD = 5
"""The number of wrong tokens at which delays begin: people mistype."""

MAX_DELAY = 300.0
"""The longest delay in seconds; the first is one second, and each doubles the one before."""

_FORGET_AFTER = 3600.0  # seconds after the last wrong token
_MAX_ADDRESSES = 10_000  # bounds memory; the one longest without a wrong token is evicted
_MAX_REPEATS = 8  # the most recent wrong tokens of an address, which count only once


@dataclass(frozen=True, slots=True)
class Viewer:
    """The sender of a request, with the scope of the log that they may read.

    `is_authenticated` is True if they have a token, or none is required; `has_full_access` if they
    may read all public channels, and the pages for operators. If they `may_say` something, we say
    it on the channels of their scope. `account` is the name under which they have signed in, "" if
    their token names nobody; `identities` are their services accounts.
    `login` is the secret of their login, which may end while a response is streamed; "" if they
    send the token with each request.
    """

    scope: Scope
    is_authenticated: bool = True
    has_full_access: bool = False
    may_say: bool = False
    account: str = ""
    identities: tuple[Place, ...] = ()
    login: str = field(default="", repr=False)


OPERATOR = Viewer(PUBLIC, has_full_access=True, may_say=True)
"""Whoever has the token of the site, or everybody where none is required."""


class AccessTokens:
    """The configured bearer tokens, compared in constant time; without any, everything is open.

    A browser sends its token once, and from then on the cookie of a login in `logins`.
    """

    def __init__(self, settings: WebSettings, logins: WebLogins) -> None:
        self._logins = logins
        holders = [
            (each.token, Viewer(_scope_of(each.channels), may_say=each.say))
            for each in settings.tokens.values()
        ]
        for name, each in settings.accounts.items():
            account = Viewer(
                PUBLIC if each.channels is None else _scope_of(each.channels),
                has_full_access=each.admin,
                may_say=each.say,
                account=name,
                identities=tuple(map(place_of, each.identities)),
            )
            holders.append((each.token, account))
        if settings.token is not None:
            holders.append((settings.token, OPERATOR))
        self._viewers = {token.get_secret_value().encode(): holder for token, holder in holders}
        self._public = _scope_of(settings.public) if settings.public else None

    @property
    def is_required(self) -> bool:
        """True if any token is configured."""
        return bool(self._viewers)

    async def viewer(self, request: Request) -> Viewer | None:
        """Return the viewer by bearer token, token in a feed's address or login cookie, in this
        order; without a valid one, an anonymous viewer of the public channels.

        Returns None if there are no public channels, a viewer of everything if no token is
        configured. Raises Unavailable.
        """
        if not self.is_required:
            return OPERATOR
        bearer = _bearer(request)
        found = None if bearer is None else self.holder_of(bearer)
        if found is None and is_feed(request.scope["path"]):
            found = self.holder_of(request.query_params.get("token", ""))
        if found is not None:
            return found
        if cookie := request.cookies.get(COOKIE, ""):
            fingerprint = await self._logins.token_fingerprint_of(cookie)  # None: it has ended
            for token, holder in self._viewers.items():
                if fingerprint == _fingerprint(token):
                    return replace(holder, login=cookie)
        return Viewer(self._public, is_authenticated=False) if self._public else None

    def presented_tokens(self, request: Request) -> Sequence[str]:
        """Return the tokens in a request, right or wrong; none if no token is required."""
        if not self.is_required:
            return ()
        given = (_bearer(request), request.query_params.get("token"))
        return [token for token in given if token is not None]

    def holder_of(self, given: str) -> Viewer | None:
        """Return who has a token, None for a wrong one."""
        found = None
        for token, holder in self._viewers.items():  # no early exit: its timing would tell which
            if hmac.compare_digest(given.encode(), token):
                found = holder
        return found

    async def is_valid(self, viewer: Viewer) -> bool:
        """Return False once the login of a viewer has ended. Raises Unavailable."""
        return not viewer.login or await self._logins.token_fingerprint_of(viewer.login) is not None

    async def log_in(self, token: str, response: Response, *, secure: bool) -> None:
        """Create a login for a valid token and set its cookie, for a year. Raises Unavailable."""
        # SameSite is lax, so that links from other sites lead to the page and not to the login.
        # That is safe: changes need a POST, which `SecurityMiddleware` accepts from our own pages
        # only.
        response.set_cookie(
            COOKIE,
            await self._logins.add(_fingerprint(token.encode())),
            max_age=int(LIFETIME.total_seconds()),
            httponly=True,
            samesite="lax",
            secure=secure,
        )

    async def log_out(self, request: Request, response: Response) -> None:
        """End the login of a browser on the server, which invalidates copies of its cookie, too.
        Raises Unavailable."""
        if cookie := request.cookies.get(COOKIE):
            await self._logins.end(cookie)
        response.delete_cookie(COOKIE)


def is_feed(path: str) -> bool:
    """Return True if this path takes the token in its address, as feed readers send no headers."""
    return path.startswith("/feed.")


def _scope_of(channels: Sequence[str]) -> Scope:
    return Scope.from_places(*map(place_of, channels))


def _bearer(request: Request) -> str | None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _fingerprint(token: bytes) -> str:
    """Return a fingerprint of a token, which is stored with its logins instead of the token."""
    return hmac.new(token, b"terrarium web session", sha256).hexdigest()


def address_of(request: Request) -> str:
    """Return the client's IPv4 address or IPv6 /64 network, the key of delays and rate limits."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    # One visitor usually has a whole /64, and could evade limits by single address.
    return str(ipaddress.ip_network((int(address), 64), strict=False))


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0
    tried: deque[bytes] = field(default_factory=lambda: deque(maxlen=_MAX_REPEATS))


class LoginDelays:
    """The wrong tokens of each address, and the resulting delays. `clock` returns monotonic
    seconds.

    A repeated wrong token does not count again, so a program that keeps sending a revoked one does
    not lock out others behind the same address.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return the seconds until a token from this address may be checked; 0 means now."""
        failures = self._failures.get(address)
        if failures is None:
            return 0.0
        passed = self._clock() - failures.last
        if passed > _FORGET_AFTER:
            del self._failures[address]
        if failures.count < THRESHOLD:
            return 0.0
        # The exponent is bounded, because a float ends at 2**1024.
        delay = min(MAX_DELAY, 2.0 ** min(failures.count - THRESHOLD, 10))
        return max(0.0, delay - passed)

    def check(self, address: str, token: str, holder: Viewer | None) -> float:
        """Return the seconds until a token counts, 0 for now; `holder` is who has it, None for a
        wrong one, which is counted.

        During a delay a right token counts only if it is too long to be guessed: others at the same
        address, behind a NAT or a proxy, lock nobody out who has one.
        """
        if wait := self.wait(address):
            is_guessed = holder is None or len(token) < GOOD_SECRET_LENGTH
            return wait if is_guessed else 0.0
        if holder is not None:
            # The token with full access resets the address. A restricted token does not, or whoever
            # has one could guess at the full one and reset the count in between.
            if holder.has_full_access:
                self._failures.pop(address, None)
            return 0.0
        failures = self._failures.setdefault(address, _Failures())
        self._failures.move_to_end(address)
        tried = sha256(token.encode()).digest()  # short, and discloses no mistyped token
        if tried not in failures.tried:
            failures.tried.append(tried)
            failures.count, failures.last = failures.count + 1, self._clock()
            if len(self._failures) > _MAX_ADDRESSES:
                self._failures.popitem(last=False)
        return 0.0
