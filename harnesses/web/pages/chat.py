"""The chat box: a conversation of its own for each browser, answered while it is written."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field, StringConstraints, field_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from harnesses.web.app_state import (
    TOO_FAST,
    AppState,
    AppStateDep,
    ScopeDep,
    require_token,
)
from harnesses.web.auth.client_address import address_of
from harnesses.web.auth.middleware import refuse
from harnesses.web.chat_session import VisitorQuestion
from harnesses.web.rendering.text import answer_html
from harnesses.web.rendering.view import page
from llm.messages.image import MOST_BYTES, Image

COOKIE = "terrarium_chat"
_ID = re.compile(r"[0-9a-f]{32}")
_YEAR = 365 * 86400
LONGEST_IMAGE = -(-MOST_BYTES // 3) * 4  # characters of base64
_LONGEST_URL, _LONGEST_SELECTION = 2_000, 1_500  # characters
router = APIRouter(include_in_schema=False, dependencies=[Depends(require_token)])
Write = Callable[[dict[str, Any]], Awaitable[None]]


class ChatQuestion(BaseModel):
    """The form of the chat box."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)]
    image: Annotated[str, Field(max_length=LONGEST_IMAGE)] | None = Field(
        None, description="a PNG, JPEG, GIF or WebP file in base64"
    )

    @field_validator("image")
    @classmethod
    def _is_an_image(cls, value: str | None) -> str | None:
        if value is not None:
            _decode(value)
        return value


@router.get("/chat")
async def show_chat(
    request: Request, state: AppStateDep, about: str = "", selected: str = ""
) -> Response:
    """The box with what has been said before; the bookmarklet opens it with a question `about` a
    page, or the words `selected` on it."""
    conversation = _conversation(request)
    said = await state.chat.history(_name(conversation)) if conversation else []
    response = page(
        request,
        "chat.html",
        said=said,
        draft=_draft(about, selected),
        bookmarklet=_bookmarklet(f"{request.base_url}chat"),
    )
    if conversation is None:
        _start(request, response)
    return response


@router.post("/chat")
async def ask(
    request: Request, state: AppStateDep, scope: ScopeDep, question: ChatQuestion
) -> Response:
    """Answer as lines of JSON: `{"text"}` for each piece, at last `{"html", "ok"}`."""
    address = address_of(request)
    if not state.questions.try_acquire(address):
        return refuse(HTTPStatus.TOO_MANY_REQUESTS, TOO_FAST, {"Retry-After": "2"})
    conversation = _conversation(request)
    fresh = None if conversation else secrets.token_hex(16)
    name = _name(conversation or fresh or "")
    image = None if question.image is None else _decode(question.image)
    asked = VisitorQuestion(question.text, scope, address, image)
    response = StreamedAnswer(lambda write: _answer(state, name, asked, write))
    if fresh:
        _remember(request, response, fresh)
    return response


@router.post("/chat/forget")
async def forget(request: Request, state: AppStateDep) -> Response:
    """Keep nothing of this conversation and begin a new one."""
    conversation = _conversation(request)
    if conversation:
        await state.chat.forget(_name(conversation))
    response = Response(status_code=303, headers={"Location": "/chat"})
    _start(request, response)
    return response


class StreamedAnswer(Response):
    """An answer that `work` writes line by line, and that stops when the reader leaves."""

    media_type = "application/x-ndjson"

    def __init__(self, work: Callable[[Write], Awaitable[None]]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]  # nobody knows it yet
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head, let `work` write, send the end."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)

        async def write(value: dict[str, Any]) -> None:
            line = json.dumps(value, ensure_ascii=False).encode() + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})

        async def work() -> None:
            await self._work(write)
            await send({"type": "http.response.body", "body": b""})

        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work())
            leaving = tasks.create_task(_wait_for_disconnect(receive))
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            leaving.cancel()


async def _answer(
    state: AppState, conversation: str, question: VisitorQuestion, write: Write
) -> None:
    async def on_text(piece: str) -> None:
        await write({"text": piece})

    reply = await state.chat.ask(conversation, question, on_text)
    await write({"html": answer_html(reply.text), "ok": reply.ok})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _decode(image: str) -> Image:
    """Return the image in a text of base64. Raises UnusableImage, binascii.Error."""
    return Image.from_bytes(base64.b64decode(image, validate=True))


def _draft(about: str, selected: str) -> str:
    """Return the question that a reader of a page begins with; they send it themselves."""
    if len(about) > _LONGEST_URL or not about.startswith(("http://", "https://")):
        return ""
    words = selected.strip()[:_LONGEST_SELECTION]
    return f"About {about}:\n\n“{words}”\n\n" if words else f"What does {about} say?"


def _bookmarklet(chat: str) -> str:
    """Return a link that, as a bookmark, asks on our chat page about the page that one is on."""
    script = (
        f"void open({json.dumps(chat)}+'?about='+encodeURIComponent(location.href)+'&selected='+"
        f"encodeURIComponent(String(getSelection()).slice(0,{_LONGEST_SELECTION})))"
    )
    return f"javascript:{quote(script)}"


def _conversation(request: Request) -> str | None:
    """Return the random id in the cookie; nobody can guess another browser's."""
    value = request.cookies.get(COOKIE, "")
    return value if _ID.fullmatch(value) else None


def _name(conversation: str) -> str:
    return f"browser/{conversation}"


def _start(request: Request, response: Response) -> None:
    _remember(request, response, secrets.token_hex(16))


def _remember(request: Request, response: Response, conversation: str) -> None:
    # Lax, not Strict: who comes here by a link from elsewhere must find the conversation again.
    response.set_cookie(
        COOKIE,
        conversation,
        max_age=_YEAR,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
