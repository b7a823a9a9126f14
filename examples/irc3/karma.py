"""irc3 plugin that counts points: `alice++` gives alice one, `!karma alice` says how many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import irc3


@irc3.plugin
class Karma:
    """The points of each nick, since the start."""

    def __init__(self, bot: irc3.IrcBot) -> None:
        self.bot = bot
        self.points: Counter[str] = Counter()

    @irc3.event(r":(?P<mask>\S+) PRIVMSG (?P<channel>#\S+) :(?P<nick>\S+)\+\+$")
    def on_point(self, mask: Any, channel: str, nick: str) -> None:
        """Give `nick` a point, unless they are the speaker."""
        if mask.nick.lower() != nick.lower():
            self.points[nick.lower()] += 1

    @irc3.event(r":(?P<mask>\S+) PRIVMSG (?P<channel>#\S+) :!karma (?P<nick>\S+)$")
    def on_question(self, mask: Any, channel: str, nick: str) -> None:
        """Say how many points `nick` has."""
        self.bot.privmsg(channel, f"{nick} has {self.points[nick.lower()]}")
