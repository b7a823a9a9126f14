"""The tokens that open the site, what each opens, and the cookie that a browser gets for one."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.settings import WebSettings, place_of
from storage.chat_log.event import PUBLIC, Scope

COOKIE = "terrarium_login"
_YEAR = 365 * 86400


@dataclass(frozen=True, slots=True)
class Viewer:
    """A viewer: the scope that they may read, and if they have shown a token.

    Where no token is asked for, everybody counts as known.
    """

    scope: Scope
    is_authenticated: bool = True

    @property
    def has_full_access(self) -> bool:
        """True if everything is open to them."""
        return self.is_authenticated and self.scope.places is None


class AccessTokens:
    """The configured bearer tokens, compared in constant time; without any, all is open."""

    def __init__(self, settings: WebSettings) -> None:
        self._scopes: dict[bytes, Scope] = {}
        for each in settings.tokens.values():
            self._scopes[each.token.get_secret_value().encode()] = Scope.from_places(
                *map(place_of, each.channels)
            )
        if settings.token is not None:
            self._scopes[settings.token.get_secret_value().encode()] = PUBLIC
        self._public = (
            Scope.from_places(*map(place_of, settings.public)) if settings.public else None
        )

    @property
    def is_required(self) -> bool:
        """True if there is a token at all."""
        return bool(self._scopes)

    def viewer(self, request: Request) -> Viewer | None:
        """Return the viewer of a bearer token, a login's cookie, or a feed's address.

        None: they may read nothing.
        """
        if not self.is_required:
            return Viewer(PUBLIC)
        bearer = _bearer(request)
        found = None if bearer is None else self.opened_by(bearer)
        if found is None and is_feed(request.scope["path"]):
            found = self.opened_by(request.query_params.get("token", ""))
        if found is None:
            found = self._logged_in(request.cookies.get(COOKIE, ""))
        if found is not None:
            return Viewer(found)
        return Viewer(self._public, is_authenticated=False) if self._public else None

    def shown(self, request: Request) -> Sequence[str]:
        """Return the tokens that a request shows, right or wrong; none where none is asked for."""
        if not self.is_required:
            return ()
        given = (_bearer(request), request.query_params.get("token"))
        return [token for token in given if token is not None]

    def opened_by(self, given: str) -> Scope | None:
        """Return what a token opens; None if it is none of ours."""
        found = None
        for token, scope in self._scopes.items():  # all of them, so that time tells nothing
            if hmac.compare_digest(given.encode(), token):
                found = scope
        return found

    def remember(self, token: str, response: Response, *, secure: bool) -> None:
        """Log a browser in for a year with a token that fits.

        Lax, so that a link from elsewhere leads to the page and not to the login. What changes
        anything is a POST, and the guard takes those from our own pages only.
        """
        response.set_cookie(
            COOKIE,
            _cookie_signature(token.encode()),
            max_age=_YEAR,
            httponly=True,
            samesite="lax",
            secure=secure,
        )

    def _logged_in(self, cookie: str) -> Scope | None:
        found = None
        for token, scope in self._scopes.items():
            if hmac.compare_digest(cookie.encode(), _cookie_signature(token).encode()):
                found = scope
        return found


def is_feed(path: str) -> bool:
    """Return True if a token in the address opens this path: feed readers can send nothing else."""
    return path.startswith("/feed.")


def _bearer(request: Request) -> str | None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _cookie_signature(token: bytes) -> str:
    """Return the value of a login's cookie: a proof that does not reveal the token."""
    return hmac.new(token, b"terrarium web login", sha256).hexdigest()
