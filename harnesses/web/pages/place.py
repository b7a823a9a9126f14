"""The channel that a page is about."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException
from starlette.requests import Request

from harnesses.web.auth.guard import INDEXABLE
from harnesses.web.reader import TheReader
from harnesses.web.settings import place_of
from harnesses.web.site import TheSite
from storage.chat_log.event import Place


async def _place(
    request: Request, site: TheSite, reader: TheReader, network: str, name: str
) -> Place:
    """The channel as the log writes it: its mark may be left out, its case be another."""
    for wanted in (name, f"#{name}"):
        place = await reader.known(Place(network, wanted))
        if place is not None:
            public = {_folded(place_of(each)) for each in site.settings.public}
            setattr(request.state, INDEXABLE, _folded(place) in public)
            return place
    raise HTTPException(404, f"Nothing has been logged of {name} on {network}.")


ThePlace = Annotated[Place, Depends(_place)]


def _folded(place: Place) -> Place:
    return Place(place.network, place.channel.lower())
