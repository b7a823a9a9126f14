"""Bearer tokens, their scopes, and the logins that browsers get for them."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.settings import WebSettings, place_of
from storage.chat_log.event import PUBLIC, Place, Scope
from storage.usage.web_logins import LIFETIME, WebLogins

COOKIE = "terrarium_login"


@dataclass(frozen=True, slots=True)
class Viewer:
    """The sender of a request, with the scope of the log that they may read.

    `is_authenticated` is True if they have a token, or none is required; `has_full_access` if they
    may read all public channels, and the pages for operators. If they `may_say` something, we say
    it on the channels of their scope. `account` is the name under which they have signed in, "" if
    their token names nobody; `identities` are their services accounts.
    `login` is the secret of their login, "" if they send the token with each request.
    """

    scope: Scope
    is_authenticated: bool = True
    has_full_access: bool = False
    may_say: bool = False
    account: str = ""
    identities: tuple[Place, ...] = ()
    login: str = field(default="", repr=False)

    @property
    def is_logged_in(self) -> bool:
        """True if they have a login, which may end while a response is streamed."""
        return bool(self.login)


OPERATOR = Viewer(PUBLIC, has_full_access=True, may_say=True)
"""Whoever has the token of the site, or everybody where none is required."""


class AccessTokens:
    """The configured bearer tokens, compared in constant time; without any, everything is open.

    A browser sends its token once, and from then on the cookie of a login in `logins`.
    """

    def __init__(self, settings: WebSettings, logins: WebLogins) -> None:
        self._logins = logins
        self._viewers = {
            each.token.get_secret_value().encode(): Viewer(
                _scope_of(each.channels), may_say=each.say
            )
            for each in settings.tokens.values()
        }
        for name, each in settings.accounts.items():
            self._viewers[each.token.get_secret_value().encode()] = Viewer(
                PUBLIC if each.channels is None else _scope_of(each.channels),
                has_full_access=each.admin,
                may_say=each.say,
                account=name,
                identities=tuple(map(place_of, each.identities)),
            )
        if settings.token is not None:
            self._viewers[settings.token.get_secret_value().encode()] = OPERATOR
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
