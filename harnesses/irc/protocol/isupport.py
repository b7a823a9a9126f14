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

MAX_LINELEN, MAX_NAME = 16 * 1024, 128
"""Upper bounds in bytes for LINELEN, and for USERLEN and HOSTLEN. An absurd LINELEN would make our
lines endless; absurd name lengths would leave no room for text."""

Casemap = Callable[[str], str]
"""Folds a nick or channel name, so that equivalent names become equal strings."""

# https://modern.ircdocs.horse/#clients lists the characters that a nick cannot contain or begin
# with. A server name has dots; the pseudo-users of a bouncer begin with an asterisk.
_NICK = re.compile(r"[^\s\x00-\x1f,*?!@.:$#&+%~-][^\s\x00-\x1f,*?!@.]*")

_ASCII = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# RFC 1459, section 2.2: {}| are the lower case of []\ (Scandinavian letters in ISO 646). The value
# `rfc1459` of CASEMAPPING also makes ^ the lower case of ~; `strict-rfc1459` does not.
_STRICT = {**_ASCII, **str.maketrans("[]\\", "{}|")}
_RFC1459 = {**_STRICT, **str.maketrans("~", "^")}


def casemap(name: str) -> Casemap:
    """Return the folding function of a CASEMAPPING value; an unknown value counts as `rfc1459`.

    The PRECIS mappings (`rfc7613`, `rfc8265`) are folded as ASCII. Only the server knows which
    Unicode nicks it treats as equal; Unicode case folding could merge two people ("straße" and
    "strasse"), ASCII folding cannot.
    """
    return _KNOWN.get(name.lower(), _rfc1459)


def is_nick(name: str) -> bool:
    """Return whether this is a valid nick of a person, and no server or bouncer pseudo-user."""
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
    # PRECIS; RFC 8265 obsoletes RFC 7613: https://ircv3.net/registry#casemapping
    "rfc7613": _ascii,
    "rfc8265": _ascii,
}


@dataclass(frozen=True)
class ISupport:
    """The parameters that a server advertises in 005, with the protocol's defaults for the rest."""

    tokens: Mapping[str, str] = field(default_factory=dict)

    def with_tokens(self, words: Iterable[str]) -> ISupport:
        """Return a copy updated with the tokens of a 005 line; `-TOKEN` removes a token."""
        tokens = dict(self.tokens)
        for word in words:
            # A value may contain "=", and \xHH for characters that a token cannot contain.
            name, _, value = word.partition("=")
            if name.startswith("-"):
                tokens.pop(name[1:].upper(), None)
            elif name:
                tokens[name.upper()] = _HEX.sub(lambda m: chr(int(m[1], 16)), value)
        return replace(self, tokens=tokens)

    @cached_property
    def fold(self) -> Casemap:
        """The folding function that CASEMAPPING names."""
        return casemap(self.tokens.get("CASEMAPPING") or "rfc1459")

    @property
    def unknown_casemapping(self) -> str:
        """The value of CASEMAPPING if we do not support it, else ""."""
        value = self.tokens.get("CASEMAPPING", "")
        return "" if value.lower() in _KNOWN else value

    @cached_property
    def prefix(self) -> Mapping[str, str]:
        """PREFIX: symbols mapped to member modes, highest first, as in {"@": "o", "+": "v"}."""
        value = self.tokens.get("PREFIX", "(ov)@+")
        match = _PREFIX.fullmatch(value)
        return dict(zip(match[2], match[1], strict=False)) if match else {}

    @property
    def chantypes(self) -> str:
        """CHANTYPES: the characters that a channel name can begin with."""
        return self.tokens.get("CHANTYPES", "#&")

    @property
    def statusmsg(self) -> str:
        """STATUSMSG: the symbols that may precede a channel name in a message target."""
        return self.tokens.get("STATUSMSG", "")

    @property
    def chanmodes(self) -> tuple[str, str, str, str]:
        """CHANMODES, types A to D: list modes, then modes that take an argument always, only when
        set, and never."""
        kinds = [*self.tokens.get("CHANMODES", _CHANMODES).split(","), "", "", "", ""]
        return kinds[0], kinds[1], kinds[2], kinds[3]

    @property
    def nicklen(self) -> int:
        """NICKLEN: the maximum length of a nick."""
        return max(self._number("NICKLEN", 9), 1)

    @property
    def tells_nicklen(self) -> bool:
        """True if the server has advertised NICKLEN."""
        return "NICKLEN" in self.tokens

    @property
    def linelen(self) -> int:
        """LINELEN: the maximum bytes of a line, including CRLF and excluding tags."""
        return min(max(self._number("LINELEN", 512), 512), MAX_LINELEN)

    @property
    def userlen(self) -> int:
        """USERLEN: the maximum bytes of a user name, plus one for the `~` that servers prepend."""
        return min(self._number("USERLEN", 10), MAX_NAME) + 1

    @property
    def hostlen(self) -> int:
        """HOSTLEN: the maximum bytes of a host name."""
        return min(self._number("HOSTLEN", 63), MAX_NAME)

    @property
    def bot(self) -> str:
        """BOT: the letter of the user mode that marks a bot, or "" if there is none."""
        return self.tokens.get("BOT", "")[:1]

    def passes_tag(self, name: str) -> bool:
        """Return whether the server passes the client-only tag `+name` on (CLIENTTAGDENY)."""
        denied = self.tokens.get("CLIENTTAGDENY", "").split(",")
        return f"-{name}" in denied if "*" in denied else name not in denied

    def targets(self, command: str) -> int:
        """Return how many targets one `command` accepts (TARGMAX, MAXTARGETS); 1 by default."""
        for item in self.tokens.get("TARGMAX", "").split(","):
            name, _, limit = item.partition(":")
            if name.upper() == command:
                # "JOIN:" without a number means that there is no limit.
                return _decimal(limit, 0) or 1000
        return max(self._number("MAXTARGETS", 1), 1)

    def is_channel(self, name: str) -> bool:
        """Return whether `name` is a channel name."""
        return name[:1] != "" and name[0] in self.chantypes

    def channel_of(self, target: str) -> str | None:
        """Return the channel of a message target, without STATUSMSG symbols; None for a nick."""
        # A symbol may also be a channel type ("+" with CHANTYPES=#+): if nothing that is a channel
        # remains without the symbols, the target itself may be the channel.
        bare = target.lstrip(self.statusmsg) if self.statusmsg else target
        return next((name for name in (bare, target) if self.is_channel(name)), None)

    def without_prefix(self, name: str) -> str:
        """Return a name from a NAMES reply without its member symbols (PREFIX, not STATUSMSG)."""
        return name.lstrip("".join(self.prefix)) if self.prefix else name

    def modes_of(self, name: str) -> set[str]:
        """Return the member modes that the symbols of a name in a NAMES reply denote."""
        symbols = name[: len(name) - len(self.without_prefix(name))]
        return {self.prefix[symbol] for symbol in symbols}

    @property
    def operator_modes(self) -> set[str]:
        """The member modes of operators and above; PREFIX lists the highest first."""
        modes = list(self.prefix.values())
        return set(modes[: modes.index("o") + 1]) if "o" in modes else set()

    def mode_changes(self, params: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
        """Yield the mode changes in `params` as (letter, argument or "", whether it is set)."""
        # CHANMODES says which modes take an argument; the member modes of PREFIX always take a
        # nick. A wrong guess for one letter would shift the arguments of all letters after it.
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
    """Return `text` as a number of at most nine digits, else `default`.

    The limit also keeps int() from raising, as it does above 4300 digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default
