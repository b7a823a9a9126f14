"""The token that opens the site, and the cookie that a browser gets for it."""

from __future__ import annotations

import hmac
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.settings import WebSettings

COOKIE = "terrarium_login"
_YEAR = 365 * 86400


class Token:
    """The configured bearer token, compared in constant time; None lets everybody in."""

    def __init__(self, settings: WebSettings) -> None:
        secret = settings.token
        self._token = secret.get_secret_value().encode() if secret else None

    @property
    def required(self) -> bool:
        """Whether there is a token at all."""
        return self._token is not None

    def fits(self, given: str) -> bool:
        """Whether this is the token."""
        return self._token is not None and hmac.compare_digest(given.encode(), self._token)

    def cookie(self) -> str:
        """What a browser keeps after a login: a proof that does not tell the token."""
        return hmac.new(self._token or b"", b"terrarium web login", sha256).hexdigest()

    def admits(self, request: Request) -> bool:
        """Whether a request brings the token, or the cookie of a login."""
        if not self.required:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.fits(given.strip()):
            return True
        return hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), self.cookie().encode())

    def remember(self, response: Response, *, secure: bool) -> None:
        """Log a browser in for a year."""
        response.set_cookie(
            COOKIE,
            self.cookie(),
            max_age=_YEAR,
            httponly=True,
            samesite="strict",
            secure=secure,
        )
