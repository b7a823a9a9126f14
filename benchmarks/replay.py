"""Channels that go on as #ubuntu really did, with a question to the bot now and then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from benchmarks import ubuntu
from storage.chat_log.event import SPOKEN, Event, EventType, Place
from storage.log import ChatLog

BOT = "Terra"
_APART = 25_000  # lines of the corpus between the beginnings of two channels
_EVERYBODY = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it stands in the log: who asks what, and the event."""

    who: str
    text: str
    anchor: int


class Channel:
    """The channel number `number` of `log`. With an `asker` all questions are of that one person,
    else each is of whoever really said its words."""

    def __init__(self, log: ChatLog, number: int, asker: str = _EVERYBODY) -> None:
        self.place = Place("libera", f"#channel{number}")
        self.log = log
        self._asker = asker
        self._lines = iter(ubuntu.lines()[number * _APART :])
        self._time = ubuntu.BEGIN + timedelta(microseconds=number)

    def __str__(self) -> str:
        return f"{self.place.network}/{self.place.channel}"

    async def goes_on(self, lines: int) -> None:
        """The log has so many lines more."""
        await self.log.add([self._event(*next(self._lines)) for _ in range(lines)])

    async def question(self) -> Asked:
        """The next line that somebody said, said to the bot."""
        kind, nick, text = next(self._lines)
        while kind not in SPOKEN or not text.strip():
            kind, nick, text = next(self._lines)
        who = self._asker or nick
        event = self._event(EventType.PRIVMSG, who, f".terrarium {text}")
        [anchor] = await self.log.add([event])
        return Asked(who, text, anchor)

    async def answered(self, asked: Asked, text: str) -> None:
        """The bot says its answer."""
        event = self._event(EventType.PRIVMSG, BOT, f"{asked.who}: {text}", asked.anchor)
        await self.log.add([event])

    def _event(self, kind: EventType, nick: str, text: str, reply_to: int | None = None) -> Event:
        self._time += ubuntu.PAUSE
        return Event(
            network=self.place.network,
            channel=self.place.channel,
            type=kind,
            time=self._time,
            nick=nick,
            text=text,
            own=reply_to is not None,
            reply_to=reply_to,
        )
