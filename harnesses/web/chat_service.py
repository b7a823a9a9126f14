"""The conversations of the chat page and of MCP clients with the model."""

from __future__ import annotations

from harnesses.core.services.peers import Origin
from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import web_address
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.web.visitors import Visitor
from llm.client.response import OnText
from llm.messages.message import Image
from llm.skills.registry import TEACH


async def answer_visitor(
    tendril: Tendril,
    visitor: Visitor,
    conversation: str,
    text: str,
    address: str,
    on_text: OnText,
    image: Image | None = None,
) -> TurnResult:
    """Answer a question in a conversation of a visitor at a network `address`, passing each piece
    of the answer to `on_text` as it is generated. Their tools are confined to what they may
    read."""
    scope = visitor.viewer.scope
    door = Door(
        log=tendril.log.tools_within(scope),
        address=lambda: web_address(tendril.config),
        room=visitor.room,
        who=visitor.who.nick,
    )
    return await tendril.turn(
        TurnRequest(
            conversation=conversation,
            who=visitor.who.nick,
            text=text,
            person=visitor.person,
            room=visitor.room,
            budget_owner=visitor.viewer.account or address,
            image=image,
            tools=tendril.tools_for(door),
            rights=lambda: {TEACH},
            on_text=on_text,
            private=True,
            origin=Origin(tendril.name, visitor.who, scope),
        )
    )
