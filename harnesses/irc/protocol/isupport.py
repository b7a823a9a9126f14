"""ISUPPORT, numeric 005 (https://modern.ircdocs.horse/#rplisupport-005), and case mappings."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

_HEX = re.compile(r"\\x([0-9A-Fa-f]{2})")
_PREFIX = re.compile(r"\(([^)]*)\)(.*)")
_CHANMODES = "beI,k,l,imnpst"

MOST_LINELEN, MOST_NAME = 16 * 1024, 128
"""Bytes of a line, and of a user or host name, that we believe: what a server says of them must not
make our lines endless, nor cut them into letters."""

Casemap = Callable[[str], str]
"""Turns a nick or channel into the form in which equal names are equal strings."""

# https://modern.ircdocs.horse/#clients: what a nick never has, and cannot begin with. Servers'
# names have dots; the modules of a bouncer begin with an asterisk.
_NICK = re.compile(r"[^\s\x00-\x1f,*?!@.:$#&+%~-][^\s\x00-\x1f,*?!@.]*")

_ASCII = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# RFC 1459, section 2.2: {}| are the lower case of []\ (Finnish letters in ISO 646), and by the
# mapping of that name ~ is upper case of ^ as well.
_STRICT = {**_ASCII, **str.maketrans("[]\\", "{}|")}
_RFC1459 = {**_STRICT, **str.maketrans("~", "^")}


def casemap(name: str) -> Casemap:
    """Return the case folding that a CASEMAPPING value stands for.

    What a server with Unicode nicks takes for equal is its own to say; folded as ASCII, no two
    people are ever one, which Unicode's folding makes of some ("straße" and "strasse"). Any other
    value is read as if there were none, as rfc1459.
    """
    return _KNOWN.get(name.lower(), _rfc1459)


def is_nick(name: str) -> bool:
    """Return whether a person can have this nick; a server or a module of a bouncer has none."""
    return _NICK.fullmatch(name) is not None


def _ascii(name: str) -> str:
    return name.translate(_ASCII)


def _strict(name: str) -> str:
    return name.translate(_STRICT)


def _rfc1459(name: str) -> str:
    return name.translate(_RFC1459)


_KNOWN: dict[str, Casemap] = {
    "ascii": _ascii,
    "strict-rfc1459": _strict,
    "rfc1459": _rfc1459,
    # PRECIS, of which RFC 8265 is the newer version: https://ircv3.net/registry#casemapping
    "rfc7613": _ascii,
    "rfc8265": _ascii,
}


@dataclass(frozen=True)
class ISupport:
    """The tokens of 005, read with the protocol's defaults where the server is silent."""

    tokens: Mapping[str, str] = field(default_factory=dict)

    def with_tokens(self, words: Iterable[str]) -> ISupport:
        """Return this with the tokens of one more 005 line; `-TOKEN` takes one back."""
        tokens = dict(self.tokens)
        for word in words:
            name, _, value = word.partition("=")  # a value may have "=" itself
            if name.startswith("-"):
                tokens.pop(name[1:].upper(), None)
            elif name:
                tokens[name.upper()] = _HEX.sub(lambda m: chr(int(m[1], 16)), value)
        return replace(self, tokens=tokens)

    @cached_property
    def fold(self) -> Casemap:
        """CASEMAPPING as a function."""
        return casemap(self.tokens.get("CASEMAPPING") or "rfc1459")

    @property
    def unknown_casemapping(self) -> str:
        """The value of CASEMAPPING where it is none that we know, else ""."""
        value = self.tokens.get("CASEMAPPING", "")
        return "" if value.lower() in _KNOWN else value

    @cached_property
    def prefix(self) -> Mapping[str, str]:
        """PREFIX: the member modes by their symbol, highest first, as in {"@": "o", "+": "v"}."""
        value = self.tokens.get("PREFIX", "(ov)@+")
        match = _PREFIX.fullmatch(value)
        return dict(zip(match[2], match[1], strict=False)) if match else {}

    @property
    def chantypes(self) -> str:
        """CHANTYPES: the characters that a channel's name begins with."""
        return self.tokens.get("CHANTYPES", "#&")

    @property
    def statusmsg(self) -> str:
        """STATUSMSG: the symbols that may stand before a channel in a target."""
        return self.tokens.get("STATUSMSG", "")

    @property
    def chanmodes(self) -> tuple[str, str, str, str]:
        """CHANMODES: list modes; always, only when set, and never with a parameter."""
        kinds = [*self.tokens.get("CHANMODES", _CHANMODES).split(","), "", "", "", ""]
        return kinds[0], kinds[1], kinds[2], kinds[3]

    @property
    def nicklen(self) -> int:
        """NICKLEN: the longest nick."""
        return max(self._number("NICKLEN", 9), 1)

    @property
    def tells_nicklen(self) -> bool:
        """True when the server has said how long a nick may be."""
        return "NICKLEN" in self.tokens

    @property
    def linelen(self) -> int:
        """LINELEN: bytes of a line with its CRLF and without tags."""
        return min(max(self._number("LINELEN", 512), 512), MOST_LINELEN)

    @property
    def userlen(self) -> int:
        """USERLEN: bytes of a user name; one more than usual for the `~` that servers add."""
        return min(self._number("USERLEN", 10), MOST_NAME) + 1

    @property
    def hostlen(self) -> int:
        """HOSTLEN: bytes of a host name."""
        return min(self._number("HOSTLEN", 63), MOST_NAME)

    @property
    def bot(self) -> str:
        """BOT: the letter of the mode that marks us as a bot, or ""."""
        return self.tokens.get("BOT", "")[:1]

    def targets(self, command: str) -> int:
        """Return how many targets `command` takes at once (TARGMAX, MAXTARGETS); 1 by default."""
        for item in self.tokens.get("TARGMAX", "").split(","):
            name, _, limit = item.partition(":")
            if name.upper() == command:
                return _decimal(limit, 0) or 1000
        return max(self._number("MAXTARGETS", 1), 1)

    def is_channel(self, name: str) -> bool:
        """Return whether `name` is that of a channel."""
        return name[:1] != "" and name[0] in self.chantypes

    def channel_of(self, target: str) -> str | None:
        """Return the channel that a message's target reaches, its STATUSMSG symbols taken off."""
        bare = target.lstrip(self.statusmsg) if self.statusmsg else target
        return next((name for name in (bare, target) if self.is_channel(name)), None)

    def without_prefix(self, name: str) -> str:
        """Return a name of a NAMES reply without its member symbols (PREFIX, not STATUSMSG)."""
        return name.lstrip("".join(self.prefix)) if self.prefix else name

    def modes_of(self, name: str) -> set[str]:
        """Return the member modes that the symbols before a name of a NAMES reply stand for."""
        symbols = name[: len(name) - len(self.without_prefix(name))]
        return {self.prefix[symbol] for symbol in symbols}

    @property
    def operator_modes(self) -> set[str]:
        """The member modes from `o` upwards; PREFIX lists the highest first."""
        modes = list(self.prefix.values())
        return set(modes[: modes.index("o") + 1]) if "o" in modes else set()

    def mode_changes(self, params: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
        """Yield the changes in the parameters of MODE: letter, argument or "", and whether set."""
        # Which modes take an argument is the server's to say (CHANMODES=A,B,C,D: lists; always;
        # only when set; never); those of PREFIX always take a nick. A letter read wrongly would
        # shift the arguments of all that follow.
        always, on_set = set(self.prefix.values()), set(self.chanmodes[2])
        always.update(self.chanmodes[0], self.chanmodes[1])
        arguments, on = list(params[1:]), True
        for letter in params[0] if params else "":
            if letter in "+-":
                on = letter == "+"
                continue
            takes = letter in always or (on and letter in on_set)
            yield letter, arguments.pop(0) if takes and arguments else "", on

    def _number(self, token: str, default: int) -> int:
        return _decimal(self.tokens.get(token, ""), default)


def _decimal(text: str, default: int) -> int:
    """Return a number of a few digits; a longer one is nonsense that int() may even refuse."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default
