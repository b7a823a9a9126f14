"""The conversations of the chat page and of MCP clients with the model."""

from __future__ import annotations

from harnesses.core.services.peers import Origin
from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import web_address
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from llm.client.response import OnText
from llm.messages.message import Image
from llm.skills.registry import TEACH
from storage.chat_log.event import Identity, Scope

VISITOR = "visitor"  # tokens and cookies identify no person


async def answer_visitor(
    tendril: Tendril,
    conversation: str,
    text: str,
    scope: Scope,
    address: str,
    on_text: OnText,
    image: Image | None = None,
) -> TurnResult:
    """Answer a question from a network `address`, whose tools are confined to `scope`, passing each
    piece of the answer to `on_text` as it is generated."""
    door = Door(
        log=tendril.log.tools_within(scope),
        address=lambda: web_address(tendril.config),
        room=conversation,
        who=VISITOR,
    )
    return await tendril.turn(
        TurnRequest(
            conversation=conversation,
            who=VISITOR,
            text=text,
            budget_owner=address,
            image=image,
            tools=tendril.tools_for(door),
            rights=lambda: {TEACH},
            on_text=on_text,
            private=True,
            origin=Origin(tendril.name, Identity(VISITOR), scope),
        )
    )
