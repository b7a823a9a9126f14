"""The dependency that resolves the channel in the path of a page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException
from starlette.requests import Request

from harnesses.web.app_state import AppStateDep
from harnesses.web.auth.middleware import INDEXABLE
from harnesses.web.log_access import LogAccessDep
from harnesses.web.settings import place_of
from storage.chat_log.event import Place


async def _place(
    request: Request, state: AppStateDep, log_access: LogAccessDep, network: str, name: str
) -> Place:
    """Return the channel with the spelling of the log: the path may differ in case, and may leave
    out the `#`. Raises HTTPException 404.

    Also tells `SecurityMiddleware` whether search engines may index the page.
    """
    for wanted in (name, f"#{name}"):
        place = await log_access.find_place(Place(network, wanted))
        if place is not None:
            public = {_fold_place(place_of(each)) for each in state.settings.public}
            setattr(request.state, INDEXABLE, _fold_place(place) in public)
            return place
    raise HTTPException(404, f"Nothing has been logged of {name} on {network}.")


ChannelDep = Annotated[Place, Depends(_place)]


def _fold_place(place: Place) -> Place:
    return Place(place.network, place.channel.lower())
