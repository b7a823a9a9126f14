"""The chat page: the conversations of a person or a browser, with streamed answers."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Header, HTTPException, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from markupsafe import Markup
from pydantic import BaseModel, Field, StringConstraints, field_validator
from starlette.types import Receive, Scope, Send

from harnesses.web.app_state import TOO_FAST, AppState, AppStateDep, require_token
from harnesses.web.auth.middleware import MAX_IMAGE_CHARS, see_other
from harnesses.web.auth.tokens import address_of
from harnesses.web.pages.runs import scope_for
from harnesses.web.queries import Id
from harnesses.web.rendering.timezones import zone_of
from harnesses.web.rendering.view import keep, page, part
from harnesses.web.visitors import COOKIE, DUE, FIRST, Visitor, VisitorDep, log_view, visitor_turn
from llm.client.catalogue import model_choices
from llm.messages.message import AttachedFile, Image, Message, quotes_of
from llm.web.errors import ExtraMissing, PageUnreadable
from llm.web.extraction import extract
from storage.memory.conversations import Turn

_LONGEST_URL, _LONGEST_SELECTION = 2_000, 1_500  # characters
_MOST_LISTED = 50  # conversations
_HIDDEN_PAUSE = 15_000  # milliseconds after which a hidden tab asks for what is new
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
        text, problem = "", "it is neither a PDF file nor text in UTF-8"
        try:
            data = base64.b64decode(self.data, validate=True)
            if data.startswith(b"%PDF-"):
                text = (await extract(data, self.name, "pdf")).text
                problem = "it contains no text; its pages may be images"
            elif b"\0" not in data:
                text = data.decode("utf-8-sig")
                problem = "it has no text"
        except ExtraMissing:
            problem = "to read PDF files this site needs the extra `terrarium-irc[pages]`"
        except PageUnreadable as error:
            problem = str(error)
        except ValueError:  # an unfit encoding
            pass
        if not text.strip() or "\0" in text:
            problem += ". Paste the lines that matter instead."
            raise HTTPException(422, f"{self.name}: {problem}")
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


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn as the page shows it, with the name of a `file` of the question. A reminder answers no
    question, so nothing `is_asked`."""

    id: int
    is_asked: bool
    question: str
    file: str
    answer: Markup


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
    listed = [(visitor.name_of(each.name), each) for each in entries]
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
    turns = await kept.turns(visitor.conversation(name))
    asked = [turn.messages[0]["model"] for turn in turns if "model" in turn.messages[0]]
    response = page(
        request,
        "chat.html",
        turns=await _shown(request, state, visitor, turns),
        last=max((each.last for each in entries), default=0),
        name=name,
        listed=[(key, each.question[:_LONGEST_TITLE], each.time) for key, each in listed],
        draft=draft,
        models=await model_choices(state.tendril.client),
        model=asked[-1] if asked else "",
        bookmarklet=f"javascript:{quote(script)}",
    )
    return _welcome(request, visitor, response)


@router.post("/chat")
async def ask(
    request: Request, state: AppStateDep, visitor: VisitorDep, question: ChatQuestion
) -> Response:
    """Stream the answer as JSON Lines: `{"text"}` for each piece, finally `{"html", "ok"}` and, if
    it is remembered, the id of the `turn`."""
    address = address_of(request)
    if not state.questions.try_acquire(address):
        raise HTTPException(429, TOO_FAST, {"Retry-After": "2"})
    tendril, name, model = (
        state.tendril,
        visitor.conversation(question.conversation),
        question.model,
    )
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
        messages = reply.messages or ({"role": "assistant", "content": reply.text},)  # a command
        is_kept = reply.ok and bool(reply.messages)
        kept = await tendril.conversations.turns(name, limit=1) if is_kept else []
        said = Turn(0, tendril.clock.now(), messages)
        [shown] = await _shown(request, state, visitor, [said])
        turn_id = {"turn": kept[-1].id} if kept else {}
        await write({"html": shown.answer, "ok": reply.ok} | turn_id)

    return _welcome(request, visitor, StreamedAnswer(answer))


@router.get("/chat/{name}/tail", response_class=EventSourceResponse)
async def follow(
    request: Request,
    state: AppStateDep,
    visitor: VisitorDep,
    name: ConversationName,
    after: Id,
    last_event_id: Annotated[Id | None, Header()] = None,  # of a browser that reconnects
    *,
    once: bool = False,
) -> AsyncIterator[ServerSentEvent]:
    """Stream the turns with ids above `after` as HTML, for an open page of a conversation: its own,
    and a hint at what Terra has said unasked in the first one. With `once` it ends after those that
    there are, and the browser asks again: so a hidden tab holds no connection."""
    position = after if last_event_id is None else last_event_id
    yield ServerSentEvent(id=str(position), retry=_HIDDEN_PAUSE if once else 2_000)
    async for _ in state.turns.changes():
        found = await state.tendril.conversations.since(visitor.room, position)
        if found and not await state.tokens.is_valid(visitor.viewer):
            return
        for key, turn in found:
            position, place = turn.id, visitor.name_of(key)
            html = ""
            if place == name:
                html = part("turns.html", turns=await _shown(request, state, visitor, [turn]))
            elif place == FIRST:
                html = part("elsewhere.html", turn=turn.id, text=_content(turn.messages[-1]))
            yield ServerSentEvent(id=str(position), data={"turn": turn.id, "html": html})
        if once:
            return


@router.post("/chat/{name}/forget")
async def forget(state: AppStateDep, visitor: VisitorDep, name: ConversationName) -> Response:
    """Delete a conversation, and begin a new one."""
    await state.tendril.clear(visitor.conversation(name))
    return see_other("/chat/new")


def _welcome(request: Request, visitor: Visitor, response: Response) -> Response:
    """Give a new browser its cookie; return the response."""
    if visitor.is_new:
        keep(request, response, COOKIE, visitor.who.host)
    return response


def _content(message: Message) -> str:
    return str(message.get("content") or "")


async def _shown(
    request: Request, state: AppState, visitor: Visitor, turns: Sequence[Turn]
) -> list[ShownTurn]:
    """Return turns as the page shows them, each answer with its sources as cards: the lines that it
    quotes, as far as the visitor may read them, reports, and pages that were read for it."""
    tendril, scope = state.tendril, visitor.viewer.scope
    view = log_view(tendril, visitor)
    events = await state.lines(scope, quotes_of(*(turn.messages[-1] for turn in turns)))
    shown = []
    for turn in turns:
        # Without the tool calls between a question and its answer.
        question, answer = turn.messages[0], turn.messages[-1]
        text = _content(answer)
        cited = [each for each in events.values() if each.id in quotes_of(answer)]
        for event in cited:
            text = view.quoting.without(text, event)
        calls = [call for message in turn.messages for call in message.get("tool_calls", ())]
        read = [call["function"] for call in calls if call["function"]["name"] == "read_page"]
        urls = dict.fromkeys(str(json.loads(each["arguments"]).get("url", "")) for each in read)
        links = [(url, url, "read for this answer") for url in urls if url.startswith("http")]
        _, is_linked, rest = text.partition("/research/")
        report = await state.reports.get(rest.split()[0]) if is_linked and rest.split() else None
        if report and scope_for(visitor.viewer, report):
            stage = "is being worked on" if report.is_open else "done"
            links.append((f"/research/{report.id}", report.question, f"report, {stage}"))
        shown.append(
            ShownTurn(
                turn.id,
                question.get("content") != DUE,
                _content(question),
                question.get("file", {}).get("name", ""),
                part(
                    "answer.html", text=text, events=cited, links=links, zone=zone_of(request)
                ).strip(),
            )
        )
    return shown


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
