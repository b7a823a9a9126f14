"""The tokens that open the site, what each opens, and the login that a browser gets for one."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.settings import WebSettings, place_of
from storage.chat_log.event import PUBLIC, Scope
from storage.usage.web_logins import LIFETIME, WebLogins

COOKIE = "terrarium_login"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A viewer: the scope that they may read, if they have shown a token, and the secret of the
    `login` at which they did; "" when they show it with each request.

    Where no token is asked for, everybody counts as known.
    """

    scope: Scope
    is_authenticated: bool = True
    login: str = field(default="", repr=False)

    @property
    def is_logged_in(self) -> bool:
        """True if they have a login, which may end."""
        return bool(self.login)

    @property
    def has_full_access(self) -> bool:
        """True if everything is open to them."""
        return self.is_authenticated and self.scope.places is None


class AccessTokens:
    """The configured bearer tokens, compared in constant time; without any, all is open.

    A browser shows its token once, and then the cookie of a login in `logins`.
    """

    def __init__(self, settings: WebSettings, logins: WebLogins) -> None:
        self._logins = logins
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

    async def viewer(self, request: Request) -> Viewer | None:
        """Return the viewer of a bearer token, a login's cookie, or a feed's address.

        None: they may read nothing. Raises Unavailable.
        """
        if not self.is_required:
            return Viewer(PUBLIC)
        bearer = _bearer(request)
        found = None if bearer is None else self.opened_by(bearer)
        if found is None and is_feed(request.scope["path"]):
            found = self.opened_by(request.query_params.get("token", ""))
        if found is not None:
            return Viewer(found)
        cookie = request.cookies.get(COOKIE, "")
        found = await self._logged_in(cookie)
        if found is not None:
            return Viewer(found, login=cookie)
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

    async def log_in(self, token: str, response: Response, *, secure: bool) -> None:
        """Log a browser in for a year with a token that fits. Raises Unavailable.

        Lax, so that a link from elsewhere leads to the page and not to the login. What changes
        anything is a POST, and the guard takes those from our own pages only.
        """
        response.set_cookie(
            COOKIE,
            await self._logins.add(_proof(token.encode())),
            max_age=int(LIFETIME.total_seconds()),
            httponly=True,
            samesite="lax",
            secure=secure,
        )

    async def log_out(self, request: Request, response: Response) -> None:
        """End the login of a browser, for whoever has a copy of its cookie too. Raises
        Unavailable."""
        if cookie := request.cookies.get(COOKIE):
            await self._logins.end(cookie)
        response.delete_cookie(COOKIE)

    async def _logged_in(self, cookie: str) -> Scope | None:
        """Return what a login opens; None if it has ended, or its token is no longer ours."""
        proof = await self._logins.proof_of(cookie) if cookie else None
        if proof is None:
            return None
        proofs = {_proof(token): scope for token, scope in self._scopes.items()}
        return proofs.get(proof)


def is_feed(path: str) -> bool:
    """Return True if a token in the address opens this path: feed readers can send nothing else."""
    return path.startswith("/feed.")


def _bearer(request: Request) -> str | None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _proof(token: bytes) -> str:
    """Return what tells a token from others without revealing it."""
    return hmac.new(token, b"terrarium web session", sha256).hexdigest()
