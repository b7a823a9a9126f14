"""Settings of a channel, resolved from defaults, the configuration file and what admins set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, ValidationError

from harnesses.irc.protocol.message import Casemap
from storage.chat_log.event import Place, channel_of_room
from storage.db.database import Database
from storage.queues.channel_settings import EVERYWHERE, ChannelSettings
from terrarium.config import NamedTable

Proactive = Literal["off", "test", "on"]
"""Values of the setting `proactive`; `test` only records what the bot would have said."""


class ChannelKeys(NamedTable):
    """Keys that one channel may have of its own; "*" stands for every channel of the network."""

    command_prefix: str | None = Field(
        None, min_length=1, max_length=8, description="What a command begins with"
    )
    persona: str | None = Field(
        None,
        min_length=1,
        max_length=8_000,
        description="Who the bot is: the name of a file in DATA/personas, or a text",
    )
    line_budget: int | None = Field(None, ge=1, le=50, description="Lines of a reply that are sent")
    model: str | None = Field(None, min_length=1, max_length=200, description="Model to ask for")
    max_context_messages: int | None = Field(
        None, ge=0, le=1_000, description="Number of people's lines that the model is shown"
    )
    logging: bool | None = Field(None, description="Whether events there are logged")
    proactive: Proactive | None = Field(
        None,
        description='Whether the bot speaks unasked: "off" (so by default), "on", or "test", '
        "which only notes when it would",
    )
    titles: bool | None = Field(
        None, description="Whether the bot posts the titles of linked pages (docs/pages.md)"
    )


@dataclass(frozen=True, slots=True)
class ChannelBehaviour:
    """The effective settings of one channel."""

    command_prefix: str
    line_budget: int
    model: str
    max_context_messages: int
    persona: str | None = None
    logging: bool = True
    proactive: Proactive = "off"
    titles: bool = False


def key_of(word: str) -> str:
    """Return the key that a word names: in full, or by one of its parts between underscores.

    Raises ValueError, also when several keys have that part.
    """
    keys = list(ChannelKeys.model_fields)
    fits = [key for key in keys if word.lower() in key.split("_")]
    if word.lower() in keys:
        return word.lower()
    if len(fits) == 1:
        return fits[0]
    raise ValueError(f"There is no setting {word!r}; there are: {', '.join(keys)}.")


def value_of(key: str, text: str) -> Any:
    """Parse the value of a key as an admin types it. Raises ValueError, worded for people."""
    try:
        return getattr(ChannelKeys.model_validate({key: text}), key)
    except ValidationError as error:
        raise ValueError(f"{key}: {error.errors(include_url=False)[0]['msg']}") from error


_IGNORED, _JOINED = "ignored", "joined"
_LEFT = "-"  # stored in place of a channel's key once we were told to leave


class LiveSettings:
    """The settings of every place and the decisions of admins, which outlast a restart.

    Precedence, highest first: the channel as set by an admin, the channel in the file, "*" as set
    by an admin, "*" in the file, the defaults. `resolve` returns the effective settings of a place,
    whose channel may be unfolded; a status room (`@#c`) has those of its channel. Elsewhere places
    are folded. `ignored` are the masks of ignored people by network.
    """

    def __init__(self, stored: ChannelSettings, values: Mapping[Place, Mapping[str, str]]) -> None:
        self._stored = stored
        self.ignored: dict[str, list[str]] = {}
        self._joined: dict[Place, str] = {}
        self._set: dict[Place, dict[str, Any]] = {}
        for place, kept in values.items():
            if masks := kept.get(_IGNORED):
                self.ignored[place.network] = masks.split()
            if _JOINED in kept:
                self._joined[place] = kept[_JOINED]
            for key in kept.keys() & ChannelKeys.model_fields.keys():
                with suppress(ValueError):  # stored by another version: use the file's value
                    self._set.setdefault(place, {})[key] = value_of(key, kept[key])
        self._files: dict[str, dict[str, dict[str, Any]]] = {}
        self._defaults: dict[str, ChannelBehaviour] = {}
        self._folds: dict[str, Casemap] = {}
        # For each line that is heard; bounded, as each private conversation is a place too.
        self._cached = lru_cache(maxsize=1_000)(self._resolve)
        self.resolve: Callable[[Place], ChannelBehaviour] = self._cached

    @classmethod
    async def load(cls, database: Database) -> LiveSettings:
        """Load what admins have decided. Raises StorageError."""
        stored = ChannelSettings(database)
        return cls(stored, await stored.all())

    def configure(
        self,
        network: str,
        default: ChannelBehaviour,
        file: Mapping[str, ChannelKeys],
        fold: Casemap,
    ) -> None:
        """Set the defaults, the file's channel tables and the casemapping of a network."""
        self._defaults[network], self._folds[network] = default, fold
        self._files[network] = {
            name: keys.model_dump(exclude_none=True) for name, keys in file.items()
        }
        self._cached.cache_clear()

    def _resolve(self, place: Place) -> ChannelBehaviour:
        channel = channel_of_room(place.channel)
        place = Place(place.network, self._folds[place.network](channel))
        values = {key: value for key, (value, _) in self.sources(place).items()}
        return replace(self._defaults[place.network], **values)

    def sources(self, place: Place) -> dict[str, tuple[Any, str]]:
        """Return the value and the origin of each setting that is not the default, by key."""
        found: dict[str, tuple[Any, str]] = {}
        fold, tables = self._folds[place.network], self._files[place.network].items()
        # Later values win, hence lowest precedence first.
        for channel in (EVERYWHERE, place.channel):
            file = next((values for name, values in tables if fold(name) == channel), {})
            live = self._set.get(Place(place.network, channel), {})
            for values, how in ((file, "file"), (live, "set")):
                found |= {key: (v, f"{how} for {channel}") for key, v in values.items()}
        return found

    async def set_value(self, place: Place, key: str, value: Any) -> None:
        """Set a key of a place; None removes what an admin has set. Raises StorageError."""
        await self._stored.put(place, key, None if value is None else str(value))
        values = self._set.setdefault(place, {})
        values.pop(key, None)
        if value is not None:
            values[key] = value
        self._cached.cache_clear()

    def channels(self, network: str) -> dict[str, str | None]:
        """Return the key (or "") of each channel to join; None for a channel to stay out of."""
        return {
            place.channel: None if key == _LEFT else key.removeprefix(" ")
            for place, key in self._joined.items()
            if place.network == network
        }

    async def set_joined(self, place: Place, key: str | None) -> None:
        """Store that a restart is to join a channel with a key or "", or, with None, is not to join
        it, even if the file names it. Raises StorageError."""
        # The blank keeps a channel whose key is "-" apart from `_LEFT`.
        self._joined[place] = _LEFT if key is None else f" {key}"
        await self._stored.put(place, _JOINED, self._joined[place])

    async def set_ignored(self, network: str, mask: str, *, on: bool) -> bool:
        """Add an ignore mask, or remove it unless `on`; return False if nothing has changed.
        Raises StorageError."""
        masks = self.ignored.get(network, [])
        if (mask in masks) == on:
            return False
        masks = [*masks, mask] if on else [each for each in masks if each != mask]
        self.ignored[network] = masks
        await self._stored.put(Place(network, EVERYWHERE), _IGNORED, " ".join(masks) or None)
        return True
