"""Where a tendril may speak unasked again, and when: what of it survives a restart."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from storage.chat_log.event import Place
from storage.db.database import Repository, from_micros, to_micros


@dataclass(frozen=True, slots=True)
class Silence:
    """The silence of a place: since the model was `asked` there last, and for good if `muted`."""

    asked: datetime
    muted: bool


class Silences(Repository):
    """The silences in a database file."""

    async def all(self) -> dict[Place, Silence]:
        """Return the silences of all places."""
        return {
            Place(row["network"], row["channel"]): Silence(
                from_micros(row["asked"]), bool(row["muted"])
            )
            for row in await self._database.fetch_all("SELECT * FROM unasked")
        }

    async def put(self, place: Place, silence: Silence) -> None:
        """Store the silence of a place."""
        await self._database.execute(
            "INSERT INTO unasked (network, channel, asked, muted) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (network, channel) DO UPDATE"
            " SET asked = excluded.asked, muted = excluded.muted",
            [place.network, place.channel, to_micros(silence.asked), int(silence.muted)],
        )
