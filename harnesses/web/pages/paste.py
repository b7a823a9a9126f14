"""Long answers of the IRC tendril, as capability URLs.

They are opened by people of the channel, who have no token of this site: the unguessable id is the
permission, so `SecurityMiddleware` asks for no token. No page lists the ids.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.app_state import AppStateDep
from harnesses.web.rendering.text import answer_html
from harnesses.web.rendering.view import page

router = APIRouter(include_in_schema=False)


@router.get("/paste/{token}")
async def show_paste(request: Request, state: AppStateDep, token: str) -> Response:
    """Show a long answer in full, until it expires."""
    paste = await state.pastes.get(token)
    html = answer_html(paste.text) if paste else None
    status = 200 if paste else 404
    response = page(request, "paste.html", status=status, paste=paste, html=html)
    response.headers["Cache-Control"] = "no-store"
    return response
