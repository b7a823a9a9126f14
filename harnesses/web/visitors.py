"""The people of the pages: those signed in, or else browsers that only a cookie identifies; and
their conversations, and those of MCP clients, with the model.

As on IRC, a person is their account, or else a mask: here the random value of the cookie is the
host. Their room in memory is named after it, as that of any private conversation.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Request

from harnesses.core.addresses import short_link
from harnesses.core.chat import ask_later
from harnesses.core.services.peers import Origin
from harnesses.core.services.question_tools import Door
from harnesses.core.services.reminders import Requester, RunOutcome
from harnesses.core.services.shared_log import room_name
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import web_address
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.web.app_state import ViewerDep
from harnesses.web.auth.tokens import Viewer
from llm.prompt.log_window import LogWindow
from llm.skills.registry import TEACH
from storage.chat_log.event import Identity, Place, Scope
from storage.chat_log.opt_outs import person_of
from storage.queues.reminders import Owner, Reminder

COOKIE = "terrarium_chat"
NETWORK = "web"
FIRST = "0"
"""The name of the conversation that a visitor has had before there were several."""
VISITOR = "visitor"
"""The nick of whoever has not signed in by name."""

DUE = "(A reminder of mine is due.)"
"""The question of a turn that holds a reminder: so the model knows what it has said unasked."""

_RIGHTS = frozenset({TEACH})
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request: a person as memory, reminders and the tools know them.

    With `is_new` their browser has no cookie yet: the chat page sets it.
    """

    viewer: Viewer
    who: Identity
    is_new: bool = False

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

    def conversation(self, name: str) -> str:
        """Return the key of one of their conversations, which nobody else can name."""
        return self.room if name == FIRST else f"{self.room}/{name}"

    def name_of(self, key: str) -> str:
        """Return the name of one of their conversations from its key."""
        return key.removeprefix(self.room).lstrip("/") or FIRST


def visitor_of(request: Request, viewer: ViewerDep) -> Visitor:
    """Return the person behind a request, by account or cookie; 128 random bits, which nobody can
    guess, for a new browser."""
    if viewer.account:
        return Visitor(viewer, Identity(viewer.account, account=viewer.account))
    value = request.cookies.get(COOKIE, "")
    is_new = not _ID.fullmatch(value)
    host = secrets.token_hex(16) if is_new else value
    return Visitor(viewer, Identity(VISITOR, "browser", host), is_new)


VisitorDep = Annotated[Visitor, Depends(visitor_of)]


def log_view(tendril: Tendril, visitor: Visitor) -> LogWindow:
    """Return the log as far as a visitor may read it. A line that an answer, which is Markdown,
    quotes links to its page."""
    address = web_address(tendril.config) or ""
    return tendril.log.view(
        visitor.viewer.scope,
        visitor.who,
        lambda event: f"[→]({address}{short_link(event)})",
    )


def visitor_turn(
    tendril: Tendril,
    visitor: Visitor,
    conversation: str,
    text: str,
    address: str,
    *,
    can_remind: bool = False,
) -> TurnRequest:
    """Return the turn of a question of a visitor at a network `address`. Their tools are confined
    to what they may read; those of reminders need a person who comes back."""
    scope, who, owner = visitor.viewer.scope, visitor.who, visitor.owners[0]
    requester = Requester(owner, visitor.place, True, visitor.room, visitor.person)
    door = Door(
        log=tendril.log.tools_within(scope),
        address=lambda: web_address(tendril.config),
        requester=requester if can_remind else None,
        room=visitor.room,
        who=who.nick,
    )
    return TurnRequest(
        conversation=conversation,
        who=who.nick,
        text=text,
        person=visitor.person,
        room=visitor.room,
        budget_owner=visitor.viewer.account or address,
        tools=tendril.tools_for(door),
        log_window=log_view(tendril, visitor),
        rights=lambda: _RIGHTS,
        private=True,
        origin=Origin(tendril.name, who, scope),
    )


async def ask_visitor_later(tendril: Tendril, scope: Scope, reminder: Reminder) -> RunOutcome:
    """Put the scheduled question of a visitor, who may read a scope, to the model; its answer is
    read in their conversation."""

    async def keep(result: TurnResult) -> bool:
        return True  # the conversation remembers it

    owner = reminder.owner
    who = Identity(owner.nick, owner.user, owner.host, owner.account)
    visitor = Visitor(Viewer(scope), who)
    turn = visitor_turn(tendril, visitor, visitor.room, reminder.text, "")
    return await ask_later(tendril, reminder, replace(turn, deliver=keep))
