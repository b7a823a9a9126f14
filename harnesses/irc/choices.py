"""What admins choose while the bot runs: in force at once, and still after a restart."""

from __future__ import annotations

from storage.channel_settings import EVERYWHERE, ChannelSettings
from storage.event import Place

_IGNORED, _JOINED = "ignored", "joined"
_LEFT = "-"  # in place of a channel's key: we have been told to leave


class Choices:
    """The people not to hear, and the channels to be in beside or without those of the file.

    Channels are folded; settings of a channel's behaviour are kept by `put`.
    """

    def __init__(self, stored: ChannelSettings) -> None:
        self._stored = stored
        self._ignored: dict[str, list[str]] = {}
        self._joined: dict[Place, str] = {}

    async def load(self) -> None:
        """Read what was chosen earlier."""
        for place, values in (await self._stored.all()).items():
            if masks := values.get(_IGNORED):
                self._ignored[place.network] = masks.split()
            if _JOINED in values:
                self._joined[place] = values[_JOINED]

    def ignored(self, network: str) -> list[str]:
        """The masks of those who are not heard on a network."""
        return self._ignored.get(network, [])

    def channels(self, network: str) -> dict[str, str | None]:
        """The channels to be in with their keys or "", and those to stay out of with None."""
        return {
            place.channel: None if key == _LEFT else key.removeprefix(" ")
            for place, key in self._joined.items()
            if place.network == network
        }

    async def ignore(self, network: str, mask: str, *, on: bool) -> bool:
        """Hear somebody no more, or again; whether that is news."""
        masks = self.ignored(network)
        if (mask in masks) == on:
            return False
        masks = [*masks, mask] if on else [each for each in masks if each != mask]
        self._ignored[network] = masks
        await self.put(Place(network, EVERYWHERE), _IGNORED, " ".join(masks) or None)
        return True

    async def join(self, place: Place, key: str) -> None:
        """Be in a channel from now on."""
        self._joined[place] = f" {key}"
        await self.put(place, _JOINED, self._joined[place])

    async def part(self, place: Place) -> None:
        """Stay out of a channel from now on."""
        self._joined[place] = _LEFT
        await self.put(place, _JOINED, _LEFT)

    async def put(self, place: Place, key: str, value: str | None) -> None:
        """Keep any key of a place; None takes it back."""
        await self._stored.put(place, key, value)
