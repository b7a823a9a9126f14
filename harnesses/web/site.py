"""What every page and endpoint works with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from harnesses.web.auth.token import Visitor
from harnesses.web.box import ChatBox
from harnesses.web.settings import WebSettings
from harnesses.web.tail import Tail
from llm.tools.semantic_search import Meaning
from storage.chat_log.event import Scope
from storage.log import ChatLog
from storage.queues.pastes import Pastes


@dataclass(frozen=True, slots=True)
class Site:
    """The parts that the web tendril is made of; `data` is the folder of the status files."""

    settings: WebSettings
    log: ChatLog
    tail: Tail
    chat: ChatBox
    pastes: Pastes
    data: Path
    meaning: Meaning | None = None


def _site(request: Request) -> Site:
    site = request.app.state.site
    assert isinstance(site, Site)
    return site


TheSite = Annotated[Site, Depends(_site)]


def _visitor(request: Request) -> Visitor:
    """Whom the guard let in."""
    visitor = request.state.visitor
    assert isinstance(visitor, Visitor)
    return visitor


TheVisitor = Annotated[Visitor, Depends(_visitor)]


def _scope(visitor: TheVisitor) -> Scope:
    return visitor.scope


TheScope = Annotated[Scope, Depends(_scope)]


def require_known(visitor: TheVisitor) -> None:
    """Let in only those who have shown a token, where there is one."""
    if not visitor.known:
        raise HTTPException(401)


def require_full(visitor: TheVisitor) -> None:
    """Let in only those who may read everything."""
    if not visitor.full:
        raise HTTPException(401)
