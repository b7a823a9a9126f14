"""Channels replayed from logs of #ubuntu, with occasional questions to the bot."""

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
    """A question in the log: the asker's nick, the text, and the event id (`anchor`)."""

    who: str
    text: str
    anchor: int


class Channel:
    """A replayed channel that writes its lines to `log`.

    `number` selects the channel and its part of the corpus. With an `asker`, that person asks all
    questions; otherwise each is asked by the line's real speaker.
    """

    def __init__(self, log: ChatLog, number: int, asker: str = _EVERYBODY) -> None:
        self.place = Place("libera", f"#channel{number}")
        self.log = log
        self._asker = asker
        self._lines = iter(ubuntu.lines()[number * _APART :])
        self._time = ubuntu.BEGIN + timedelta(microseconds=number)

    def __str__(self) -> str:
        return f"{self.place.network}/{self.place.channel}"

    async def goes_on(self, lines: int) -> None:
        """Add the next `lines` lines to the log."""
        await self.log.add([self._event(*next(self._lines)) for _ in range(lines)])

    async def question(self, asker: str = _EVERYBODY) -> Asked:
        """Log the next message as a question to the bot, of this `asker` if one is given, and
        return it."""
        kind, nick, text = next(self._lines)
        while kind not in SPOKEN or not text.strip():
            kind, nick, text = next(self._lines)
        who = asker or self._asker or nick
        event = self._event(EventType.PRIVMSG, who, f".terrarium {text}")
        [anchor] = await self.log.add([event])
        return Asked(who, text, anchor)

    async def answered(self, asked: Asked, text: str) -> None:
        """Log the bot's answer, as a reply to the question."""
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
