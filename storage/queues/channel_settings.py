"""Settings of channels that admins change while the bot is running; they survive a restart."""

from __future__ import annotations

from storage.chat_log.event import Place
from storage.db.database import Repository

EVERYWHERE = "*"
"""The channel name of settings that hold for every channel of a network."""


class ChannelSettings(Repository):
    """The settings in a database file: strings by place and key."""

    async def all(self) -> dict[Place, dict[str, str]]:
        """Return all settings."""
        found: dict[Place, dict[str, str]] = {}
        for row in await self._database.fetch_all("SELECT * FROM channel_settings ORDER BY key"):
            place = Place(row["network"], row["channel"])
            found.setdefault(place, {})[row["key"]] = row["value"]
        return found

    async def put(self, place: Place, key: str, value: str | None) -> None:
        """Set a key, or with None delete the setting."""
        where = [place.network, place.channel, key]
        if value is None:
            sql = "DELETE FROM channel_settings WHERE network = ? AND channel = ? AND key = ?"
            await self._database.execute(sql, where)
        else:
            await self._database.execute(
                "INSERT INTO channel_settings VALUES (?, ?, ?, ?)"
                " ON CONFLICT (network, channel, key) DO UPDATE SET value = excluded.value",
                [*where, value],
            )
