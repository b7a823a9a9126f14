"""The conversations of the chat page and of MCP clients with the model."""

from __future__ import annotations

from dataclasses import replace

from harnesses.core.chat import DirectChat
from harnesses.core.services.peers import Origin
from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import web_address
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.web.visitors import Visitor
from llm.client.response import OnText
from llm.messages.message import Image
from llm.skills.registry import TEACH

_RIGHTS = frozenset({TEACH})


async def answer_person(
    chat: DirectChat,
    visitor: Visitor,
    conversation: str,
    text: str,
    address: str,
    on_text: OnText,
    image: Image | None = None,
) -> TurnResult:
    """Run the command, or answer the question, of a visitor at a network `address` in one of their
    conversations, passing each piece of an answer to `on_text` as it is generated."""
    tendril, scope = chat.tendril, visitor.viewer.scope
    turn = replace(
        visitor_turn(tendril, visitor, conversation, text, address, can_remind=True),
        on_text=on_text,
        image=image,
    )
    return await chat.answer(turn, visitor.who, scope, lambda: _RIGHTS)


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
        rights=lambda: _RIGHTS,
        private=True,
        origin=Origin(tendril.name, visitor.who, scope),
    )
