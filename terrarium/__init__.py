"""Terrarium: one local model, many tendrils. This module exports the API for authors of tendrils.

    from terrarium import Settings, Tendril, TurnRequest, tool

docs/tendrils.md is the tutorial, docs/tendrils-reference.md lists every name. The names are
imported lazily, on first use: the modules of this package are the base of all others, and import
none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from harnesses.core.attention import AttentionMixin as AttentionMixin
    from harnesses.core.chat import ChatTendril as ChatTendril
    from harnesses.core.commands.request import CommandRequest as CommandRequest
    from harnesses.core.commands.request import PrivateReply as PrivateReply
    from harnesses.core.commands.table import command as command
    from harnesses.core.errors import PeerRefused as PeerRefused
    from harnesses.core.services.peers import Origin as Origin
    from harnesses.core.services.peers import PeerQuestion as PeerQuestion
    from harnesses.core.services.question_tools import ReminderTools as ReminderTools
    from harnesses.core.services.shared_log import LoggedLine as LoggedLine
    from harnesses.core.tendril.base import Tendril as Tendril
    from harnesses.core.tendril.turn import TurnRequest as TurnRequest
    from harnesses.core.tendril.turn import TurnResult as TurnResult
    from llm.messages.message import escape_tags as escape_tags
    from llm.reading.times import NotUnderstood as NotUnderstood
    from llm.tools.toolbox import ToolError as ToolError
    from llm.tools.toolbox import tool as tool
    from storage.chat_log.event import Identity as Identity
    from storage.chat_log.event import Place as Place
    from terrarium.config import Config as Config
    from terrarium.config import Settings as Settings

_MODULES = {
    "AttentionMixin": "harnesses.core.attention",
    "ChatTendril": "harnesses.core.chat",
    "CommandRequest": "harnesses.core.commands.request",
    "Config": "terrarium.config",
    "Identity": "storage.chat_log.event",
    "LoggedLine": "harnesses.core.services.shared_log",
    "NotUnderstood": "llm.reading.times",
    "Origin": "harnesses.core.services.peers",
    "PeerQuestion": "harnesses.core.services.peers",
    "PeerRefused": "harnesses.core.errors",
    "Place": "storage.chat_log.event",
    "PrivateReply": "harnesses.core.commands.request",
    "ReminderTools": "harnesses.core.services.question_tools",
    "Settings": "terrarium.config",
    "Tendril": "harnesses.core.tendril.base",
    "ToolError": "llm.tools.toolbox",
    "TurnRequest": "harnesses.core.tendril.turn",
    "TurnResult": "harnesses.core.tendril.turn",
    "command": "harnesses.core.commands.table",
    "escape_tags": "llm.messages.message",
    "tool": "llm.tools.toolbox",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
