"""Who somebody is on a network, and what a list of people says about them.

An entry of such a list is a mask with `!` or `@` (`*!*@staff.example.org`; `*` stands for any
characters, `?` for one), or without them the name of a services account. An empty list means
nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from harnesses.irc.protocol.events import IrcEvent

Fold = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody as the server shows them. A `bridged` person speaks through a relay: of them only
    the nick is known, and that anybody may choose."""

    nick: str
    user: str
    host: str
    account: str | None
    bridged: bool = False

    @classmethod
    def from_event(cls, event: IrcEvent) -> Identity:
        """Who did it."""
        return cls(event.nick, event.user or "", event.host or "", event.account)

    @property
    def name(self) -> str:
        """The nick, marked when it is a bridged person's: anybody may have chosen it there, so it
        is not the one who has that nick here."""
        return f"{self.nick}@{self.host}" if self.bridged else self.nick

    def __str__(self) -> str:
        account = f" ({self.account})" if self.account else ""
        return f"{self.nick}!{self.user}@{self.host}{account}"


def matches_any(who: Identity, entries: Iterable[str], fold: Fold) -> bool:
    """Whether an entry of the list means `who`, by account or mask."""
    whole = fold(f"{who.nick}!{who.user}@{who.host}")
    for entry in entries:
        if "!" in entry or "@" in entry:
            if _pattern(fold(mask_of(entry))).fullmatch(whole):
                return True
        elif who.account and not who.bridged and fold(who.account) == fold(entry):
            return True
    return False


def mask_of(entry: str) -> str:
    """A whole `nick!user@host` mask of one with parts left out, or of a nick alone."""
    if "!" in entry:
        return entry
    return f"*!{entry}" if "@" in entry else f"{entry}!*@*"


@lru_cache(maxsize=256)
def _pattern(mask: str) -> re.Pattern[str]:
    """A mask as a regular expression; only `*` and `?` are special, as nicks may have brackets."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(char) or re.escape(char) for char in mask), re.DOTALL)
