"""The chat page: the conversations of a person or a browser, with streamed answers."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, Field, StringConstraints, field_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from harnesses.web.app_state import TOO_FAST, AppStateDep, require_token
from harnesses.web.auth.login_delays import address_of
from harnesses.web.auth.middleware import MAX_IMAGE_CHARS, refuse, see_other
from harnesses.web.chat_service import visitor_turn
from harnesses.web.rendering.text import answer_html
from harnesses.web.rendering.view import page
from harnesses.web.visitors import Visitor, VisitorDep
from llm.messages.message import AttachedFile, Image, Message
from llm.web.errors import ExtraMissing, PageUnreadable
from llm.web.extraction import extract

_LONGEST_URL, _LONGEST_SELECTION = 2_000, 1_500  # characters
FIRST = "0"
"""The name of the conversation that a visitor has had before there were several."""

_MOST_LISTED = 50  # conversations
_LONGEST_TITLE = 80  # characters
ConversationName = Annotated[str, StringConstraints(pattern=r"^[0-9a-z]{1,32}$")]
router = APIRouter(include_in_schema=False, dependencies=[Depends(require_token)])
Write = Callable[[dict[str, Any]], Awaitable[None]]


class UploadedFile(BaseModel):
    """A text or PDF file of a chat question."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    data: Annotated[str, Field(max_length=MAX_IMAGE_CHARS, description="in base64")]

    async def read(self) -> AttachedFile:
        """Return the file with its text. Raises HTTPException 422, which says what to do."""
        try:
            data = base64.b64decode(self.data, validate=True)
            if data.startswith(b"%PDF-"):
                text = (await extract(data, self.name, "pdf")).text
                problem = "it contains no text; its pages may be images"
            else:
                text = data.decode("utf-8-sig")
                problem = (
                    "it has no text" if not text.strip() else "it is neither text nor a PDF file"
                )
        except ExtraMissing:
            text, problem = (
                "",
                "to read PDF files this site needs the extra `terrarium-irc[pages]`",
            )
        except PageUnreadable as error:
            text, problem = "", str(error)
        except ValueError:  # also of an unfit encoding
            text, problem = "", "it is neither a PDF file nor text in UTF-8"
        if not text.strip() or "\0" in text:
            raise HTTPException(
                422, f"{self.name}: {problem}. Paste the lines that matter instead."
            )
        return AttachedFile(self.name, text)


class ChatQuestion(BaseModel):
    """The request body of a chat question."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)]
    image: Annotated[str, Field(max_length=MAX_IMAGE_CHARS)] | None = Field(
        None, description="a PNG, JPEG, GIF or WebP file in base64"
    )

    file: UploadedFile | None = None
    conversation: ConversationName = FIRST
    model: Annotated[str, Field(max_length=200, description="of `/v1/models`")] = ""
    replaces: Annotated[int, Field(gt=0, lt=2**53)] | None = Field(
        None, description="the id of a turn that this question replaces, with all after it"
    )

    @field_validator("image")
    @classmethod
    def _is_an_image(cls, value: str | None) -> str | None:
        if value is not None:
            _decode(value)
        return value


@router.get("/chat")
@router.get("/chat/{name}")
async def show_chat(
    request: Request,
    state: AppStateDep,
    visitor: VisitorDep,
    name: ConversationName = "",
    about: str = "",
    selected: str = "",
) -> Response:
    """Show the chat box and a conversation: the last one, or that of a name; `new` begins another.

    The bookmarklet opens a new one with a draft of a question `about` a page, or the words
    `selected` there.
    """
    kept = state.tendril.conversations
    entries = await kept.of_room(visitor.room, _MOST_LISTED)
    listed = [(each.name.removeprefix(visitor.room).lstrip("/") or FIRST, each) for each in entries]
    if name == "new" or about:
        name = secrets.token_hex(8)
    name = name or (listed[0][0] if listed else FIRST)
    # A bookmark of this address opens our chat page with a draft about the page that is open, and
    # sends it the visible text, which it attaches.
    origin = str(request.base_url).rstrip("/")
    script = (
        "(w=>addEventListener('message',e=>e.source===w&&w.postMessage({terrarium:"
        f"document.body.innerText}},{json.dumps(origin)})))(open({json.dumps(f'{request.base_url}chat/new')}+'?about='"
        "+encodeURIComponent(location.href)+'&selected='+"
        f"encodeURIComponent(String(getSelection()).slice(0,{_LONGEST_SELECTION}))))"
    )
    # Only filled into the box: a link of another site must not ask the model by itself.
    draft = ""
    if len(about) <= _LONGEST_URL and about.startswith(("http://", "https://")):
        words = selected.strip()[:_LONGEST_SELECTION]
        draft = f"About {about}:\n\n“{words}”\n\n" if words else f"What does {about} say?"
    turns = await kept.turns(_key(visitor, name))
    asked = [turn.messages[0]["model"] for turn in turns if "model" in turn.messages[0]]
    # Without the tool calls between a question and its answer.
    said = [
        (
            turn.id,
            _content(turn.messages[0]),
            turn.messages[0].get("file", {}).get("name", ""),
            _content(turn.messages[-1]),
        )
        for turn in turns
    ]
    response = page(
        request,
        "chat.html",
        said=said,
        name=name,
        listed=[(key, each.question[:_LONGEST_TITLE], each.time) for key, each in listed],
        draft=draft,
        models=await state.tendril.resources.catalog.choices(),
        model=asked[-1] if asked else "",
        bookmarklet=f"javascript:{quote(script)}",
    )
    return visitor.welcome(request, response)


@router.post("/chat")
async def ask(
    request: Request, state: AppStateDep, visitor: VisitorDep, question: ChatQuestion
) -> Response:
    """Stream the answer as JSON Lines: `{"text"}` for each piece, finally `{"html", "ok"}` and, if
    it is remembered, the id of the `turn`."""
    address = address_of(request)
    if not state.questions.try_acquire(address):
        return refuse(request, HTTPStatus.TOO_MANY_REQUESTS, TOO_FAST, {"Retry-After": "2"})
    tendril, name, model = state.tendril, _key(visitor, question.conversation), question.model
    if model and not await tendril.resources.catalog.card(model):
        raise HTTPException(422, f"There is no model {model[:60]} now; choose another one.")
    attached: Image | AttachedFile | None = None
    if question.file is not None:
        attached = await question.file.read()
    elif question.image is not None:
        attached = _decode(question.image)
    elif question.replaces:
        past = await tendril.conversations.turns(name, start=question.replaces)
        if past and (file := past[0].messages[0].get("file")):
            attached = AttachedFile(file["name"], file["text"])

    async def answer(write: Write) -> None:
        async def on_text(piece: str) -> None:
            await write({"text": piece})

        turn = replace(
            visitor_turn(tendril, visitor, name, question.text, address, can_remind=True),
            on_text=on_text,
            model=model,
            image=attached if isinstance(attached, Image) else None,
            file=attached if isinstance(attached, AttachedFile) else None,
            replaces=question.replaces or 0,
        )
        scope = visitor.viewer.scope
        reply = await state.chat.answer(turn, visitor.who, scope, turn.rights)
        last = {"html": answer_html(reply.text), "ok": reply.ok}
        is_turn = reply.ok and bool(reply.messages)  # and no command
        if is_turn and (kept := await tendril.conversations.turns(name, limit=1)):
            last["turn"] = kept[-1].id
        await write(last)

    return visitor.welcome(request, StreamedAnswer(answer))


@router.post("/chat/{name}/forget")
async def forget(state: AppStateDep, visitor: VisitorDep, name: ConversationName) -> Response:
    """Delete a conversation, and begin a new one."""
    await state.tendril.clear(_key(visitor, name))
    return see_other("/chat/new")


def _content(message: Message) -> str:
    return str(message.get("content") or "")


def _key(visitor: Visitor, name: str) -> str:
    """Return the key of the visitor's conversation of a name."""
    return visitor.conversation("" if name == FIRST else name)


class StreamedAnswer(Response):
    """A response that `work` writes line by line; it is cancelled when the client disconnects."""

    media_type = "application/x-ndjson"

    def __init__(self, work: Callable[[Write], Awaitable[None]]) -> None:
        # The second header keeps nginx from buffering the lines.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]  # `Response` has set it to 0, for its empty body
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers, run `work`, and end the body, unless the client disconnects first."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)

        async def write(value: dict[str, Any]) -> None:
            line = json.dumps(value, ensure_ascii=False).encode() + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})

        async def work() -> None:
            await self._work(write)
            await send({"type": "http.response.body", "body": b""})

        async def wait_for_disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        # An ASGI server does not cancel the application when the client disconnects: it says so by
        # `receive`, which must be awaited while `work` runs. `StreamingResponse` would cancel each
        # further await of `work` as well, and so what a turn does to end in order.
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work())
            leaving = tasks.create_task(wait_for_disconnect())
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            leaving.cancel()


def _decode(image: str) -> Image:
    """Return a base64-encoded image. Raises UnusableImage, binascii.Error."""
    return Image.from_bytes(base64.b64decode(image, validate=True))
