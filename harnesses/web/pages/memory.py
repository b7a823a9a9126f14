"""The page of memories, on which people see, correct, export and forget what is theirs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi import Query as Param
from pydantic_core import to_json

from harnesses.web.app_state import AppState, AppStateDep, require_token
from harnesses.web.auth.middleware import refuse, see_other
from harnesses.web.rendering.view import page, read_fields
from harnesses.web.visitors import NETWORK, Visitor, VisitorDep
from llm.memory.consolidation import (
    MAX_EPISODE_LENGTH,
    MAX_FACT_LENGTH,
    MAX_NOTE_LENGTH,
    MAX_SUMMARY_LENGTH,
)
from storage.chat_log.event import Event, escape_name, is_private
from storage.chat_log.opt_outs import nick_of
from storage.db.database import Database
from storage.memory.browsing import MemoryShelf, MemoryView, SourcedMemory
from storage.memory.memories import EVERYWHERE, FOLLOW, MANUAL, Memories, Memory, MemoryKind

LONGEST = {
    MemoryKind.FACT: MAX_FACT_LENGTH,
    MemoryKind.NOTE: MAX_NOTE_LENGTH,
    MemoryKind.EPISODE: MAX_EPISODE_LENGTH,
    MemoryKind.SUMMARY: MAX_SUMMARY_LENGTH,
}
"""The most characters of each kind of memory."""

router = APIRouter(include_in_schema=False, dependencies=[Depends(require_token)])


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory of the tendril `store`, with the line of the log in which it was said, if the viewer
    may read that."""

    store: str
    memory: Memory
    line: Event | None
    is_own: bool

    @property
    def room(self) -> str:
        """The name of its room, as people know it."""
        network, _, room = self.memory.room.partition("/")
        if is_private(room):
            return "the web chat" if network == NETWORK else f"{network}, in private"
        return f"{network}/{room.replace('%2F', '/').replace('%25', '%')}"

    @property
    def longest(self) -> int:
        """The most characters of its text."""
        return LONGEST[self.memory.layer]

    def fits(self, room: str, about: str) -> bool:
        """Return whether it is of a room and about a person; "" stands for any."""
        return room in ("", self.room) and about in ("", nick_of(self.memory.subject))


async def _collect(state: AppState, visitor: Visitor) -> list[ShownMemory]:
    """Return all memories that a viewer may see, by room. Raises StorageError."""
    view, found = _view(visitor), list[tuple[str, SourcedMemory]]()
    async with state.stores() as stores:
        for store, database in stores.items():
            found += [(store, each) for each in await MemoryShelf(database).visible(view)]
    ids = {each.event_id for _, each in found if each.event_id}
    lines = await state.lines(visitor.viewer.scope, ids)
    shown = [
        ShownMemory(store, each.memory, lines.get(each.event_id), view.is_about(each.memory))
        for store, each in found
    ]
    return sorted(shown, key=lambda each: each.room)


def _view(visitor: Visitor) -> MemoryView:
    return MemoryView(visitor.people, sees_channels=visitor.viewer.has_full_access)


Filter = Annotated[str, Param(max_length=300)]


@router.get("/memory")
async def show_memory(
    request: Request,
    state: AppStateDep,
    visitor: VisitorDep,
    room: Filter = "",
    about: Filter = "",
    done: Filter = "",
) -> Response:
    """Show what is remembered in a room or about a person; by default what is the viewer's own."""
    every = await _collect(state, visitor)
    private = [each for each in every if each.is_own or "/" not in each.room]
    shown = [each for each in (every if room or about else private) if each.fits(room, about)]
    follows = {
        (each.memory.room.partition("/")[0], each.memory.subject)
        for each in every
        if each.memory.key == FOLLOW and each.memory.text.lower() == EVERYWHERE
    }
    return page(
        request,
        "memory.html",
        groups=[(name, list(group)) for name, group in groupby(shown, key=lambda each: each.room)],
        rooms=Counter(each.room for each in every),
        people=Counter(nick_of(each.memory.subject) for each in every if each.memory.subject),
        room=room,
        about=about,
        done=done,
        accounts=[(each, each in follows) for each in sorted(visitor.people - {_here(visitor)})],
    )


@router.get("/memory.json")
async def export_memory(
    state: AppStateDep, visitor: VisitorDep, room: Filter = "", about: Filter = ""
) -> Response:
    """Return all that the viewer may see as a file, or that of a room, or about a person."""
    exported = [
        {
            "tendril": each.store,
            "number": each.memory.id,
            "kind": each.memory.layer,
            "room": each.room,
            "about": nick_of(each.memory.subject),
            "key": each.memory.key,
            "text": each.memory.text,
            "source": nick_of(each.memory.source),
            "asked_for": each.memory.manual,
            "confidence": each.memory.confidence,
            "time": each.memory.time,
            "line": f"/line/{each.line.id}" if each.line else None,
        }
        for each in await _collect(state, visitor)
        if each.fits(room, about)
    ]
    lines = b",\n".join(map(to_json, exported))
    headers = {"Content-Disposition": 'attachment; filename="memory.json"'}
    return Response(b"[%s]\n" % lines, media_type="application/json", headers=headers)


@router.post("/memory")
async def change_memory(request: Request, state: AppStateDep, visitor: VisitorDep) -> Response:
    """Correct a memory, or forget some, or let those of an account follow it; show the page
    again."""
    fields = await read_fields(request)
    form = {name: values[-1] for name, values in fields.items()}
    action, view, store = form.get("action"), _view(visitor), form.get("store", "")
    async with state.stores() as stores:
        if action == "follow":
            for account in visitor.people - {_here(visitor)}:
                if "/".join(account) == form.get("account"):
                    database = stores.get(account[0], state.log.database)
                    await _follow(state, database, account, follows=form.get("follow") == "on")
                    return see_other("/memory?done=follow")
        elif store in stores:
            shelf = MemoryShelf(stores[store])
            given = (each for each in fields.get("number", ()) if each.isdecimal())
            numbers = [int(each) for each in given if len(each) < 19]  # as the database has
            if action == "forget" and await shelf.forget(view, numbers):
                return see_other("/memory?done=forgotten")
            text = " ".join(form.get("text", "").split())
            if action == "correct":
                if not 0 < len(text) <= max(LONGEST.values()):
                    problem = f"Write 1 to {max(LONGEST.values())} characters."
                    return refuse(request, HTTPStatus.UNPROCESSABLE_ENTITY, problem)
                if numbers and await shelf.correct(view, numbers[0], text):
                    return see_other("/memory?done=corrected")
    raise HTTPException(404, "It is gone, or has changed in the meantime: look at the page again.")


def _here(visitor: Visitor) -> tuple[str, str]:
    """Return the person as memory knows them in the web chat."""
    return NETWORK, visitor.person


async def _follow(
    state: AppState, database: Database, account: tuple[str, str], *, follows: bool
) -> None:
    """Let what an account has asked to be remembered follow it to all rooms of its network, or end
    that. Raises StorageError."""
    network, person = account
    view = MemoryView(frozenset({account}))
    shelf = MemoryShelf(database)
    known = await shelf.visible(view)
    wishes = [
        each.memory.id for each in known if view.is_about(each.memory) and each.memory.key == FOLLOW
    ]
    await shelf.forget(view, wishes)
    if follows:
        await Memories(database).add(
            Memory(
                layer=MemoryKind.FACT,
                room=f"{network}/{escape_name(person)}",
                text=EVERYWHERE,
                time=state.tendril.clock.now(),
                subject=person,
                key=FOLLOW,
                source=person,
                manual=True,
                confidence=MANUAL,
            )
        )
