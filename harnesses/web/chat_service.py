"""The conversations of the chat page and of MCP clients with the model."""

from __future__ import annotations

from dataclasses import replace

from harnesses.core.chat import ask_later
from harnesses.core.services.peers import Origin
from harnesses.core.services.question_tools import Door
from harnesses.core.services.reminders import RunOutcome
from harnesses.core.services.shared_log import room_name
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import web_address
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.web.auth.tokens import Viewer
from harnesses.web.visitors import Visitor, quote_link
from llm.skills.registry import TEACH
from storage.chat_log.event import Identity, Place, Scope, is_private
from storage.memory.conversations import Turn
from storage.queues.reminders import Reminder

DUE = "(A reminder of mine is due.)"
"""The question of a turn that holds a reminder: so the model knows what it has said unasked."""

_RIGHTS = frozenset({TEACH})


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
    scope = visitor.viewer.scope
    door = Door(
        log=tendril.log.tools_within(scope),
        address=lambda: web_address(tendril.config),
        requester=visitor.requester if can_remind else None,
        room=visitor.room,
        who=visitor.who.nick,
    )
    return TurnRequest(
        conversation=conversation,
        who=visitor.who.nick,
        text=text,
        person=visitor.person,
        room=visitor.room,
        budget_owner=visitor.viewer.account or address,
        tools=tendril.tools_for(door),
        log_window=tendril.log.view(scope, visitor.who, quote_link(web_address(tendril.config))),
        rights=lambda: _RIGHTS,
        private=True,
        origin=Origin(tendril.name, visitor.who, scope),
    )


async def put_reminder(tendril: Tendril, place: Place, text: str) -> bool:
    """Put a reminder into the conversation in a private place, where its owner reads it; return
    False for a channel. Raises StorageError."""
    if not is_private(place.channel):
        return False
    due = {"role": "user", "name": place.channel, "content": DUE}
    turn = Turn(0, tendril.clock.now(), (due, {"role": "assistant", "content": text}))
    room = room_name(place)
    await tendril.conversations.add(room, turn, room=room, person=place.channel)
    return True


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
