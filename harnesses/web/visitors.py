"""The people of the pages: those signed in, or else browsers that only a cookie identifies.

As on IRC, a person is their account, or else a mask: here the random value of the cookie is the
host. Their room in memory is named after it, as that of any private conversation.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from harnesses.core.permalinks import short_link
from harnesses.core.services.reminders import Requester
from harnesses.core.services.shared_log import room_name
from harnesses.web.app_state import ViewerDep
from harnesses.web.auth.tokens import Viewer
from harnesses.web.rendering.view import keep
from llm.log_questions import Link
from storage.chat_log.event import Identity, Place, Scope
from storage.chat_log.opt_outs import person_of
from storage.queues.reminders import Owner

COOKIE = "terrarium_chat"
NETWORK = "web"
VISITOR = "visitor"
"""The nick of whoever has not signed in by name."""

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request: a person as memory, reminders and the tools know them.

    With `is_new` their browser has no cookie yet: `welcome` sets it.
    """

    viewer: Viewer
    who: Identity
    is_new: bool = False

    @classmethod
    def of_program(cls, scope: Scope, name: str) -> Visitor:
        """Return the user of a conversation of an MCP client, which only `name` identifies."""
        return cls(Viewer(scope), Identity(VISITOR, "mcp", name))

    @property
    def person(self) -> str:
        """The key of the person in memory."""
        return self.who.room(person_of)

    @property
    def place(self) -> Place:
        """The private place in which they talk with us."""
        return Place(NETWORK, self.person)

    @property
    def room(self) -> str:
        """The key of that place in memory, which all of their conversations share."""
        return room_name(self.place)

    @property
    def people(self) -> frozenset[tuple[str, str]]:
        """Each network on which they are known, with their key in its memory."""
        others = {(each.network, f"~{person_of(each.channel)}") for each in self.viewer.identities}
        return frozenset({(NETWORK, self.person), *others})

    @property
    def owners(self) -> tuple[Owner, ...]:
        """The owners of their reminders, on each network."""
        who = self.who
        return (
            Owner(NETWORK, who.nick, who.user, who.host, who.account),
            *(Owner(each.network, "", account=each.channel) for each in self.viewer.identities),
        )

    @property
    def requester(self) -> Requester:
        """The person as one who asks for reminders."""
        return Requester(self.owners[0], self.place, True, self.room, self.person)

    def conversation(self, name: str) -> str:
        """Return the key of one of their conversations, which nobody else can name."""
        return f"{self.room}/{name}" if name else self.room

    def welcome(self, request: Request, response: Response) -> Response:
        """Give a new browser its cookie; return the response."""
        if self.is_new:
            keep(request, response, COOKIE, self.who.host)
        return response


def visitor_of(request: Request, viewer: ViewerDep) -> Visitor:
    """Return the person behind a request, by account or cookie; 128 random bits, which nobody can
    guess, for a new browser."""
    if viewer.account:
        return Visitor(viewer, Identity(viewer.account, account=viewer.account))
    value = request.cookies.get(COOKIE, "")
    is_new = not _ID.fullmatch(value)
    host = secrets.token_hex(16) if is_new else value
    return Visitor(viewer, Identity(VISITOR, "browser", host), is_new)


def quote_link(address: str | None) -> Link:
    """Return what links to a quoted line in an answer, which is Markdown: to the pages at an
    `address`, or to these."""
    return lambda event: f"[→]({address or ''}{short_link(event)})"


VisitorDep = Annotated[Visitor, Depends(visitor_of)]
