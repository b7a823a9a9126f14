"""What every page and endpoint works with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from harnesses.web.box import ChatBox
from harnesses.web.settings import WebSettings
from harnesses.web.tail import Tail
from storage.chat_log import ChatLog


@dataclass(frozen=True, slots=True)
class Site:
    """The parts that the web tendril is made of; `data` is the folder of the status files."""

    settings: WebSettings
    log: ChatLog
    tail: Tail
    chat: ChatBox
    data: Path


def _site(request: Request) -> Site:
    site = request.app.state.site
    assert isinstance(site, Site)
    return site


TheSite = Annotated[Site, Depends(_site)]
