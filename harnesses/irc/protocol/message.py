"""The wire format of IRC: lines, messages, and the limits and case mapping of a server (ISUPPORT).

RFC 1459 section 2.3.1 with IRCv3 message tags (https://ircv3.net/specs/extensions/message-tags).
No I/O.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import regex
import structlog

from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.protocol.events import Talk

log = structlog.get_logger()

MAX_LINE = 64 * 1024
"""Maximum bytes kept of one line. Servers send at most 8191 bytes of tags and 512 of the rest."""

_UNESCAPED = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED = str.maketrans({";": "\\:", " ": "\\s", "\\": "\\\\", "\r": "\\r", "\n": "\\n"})
_TEXT_COMMANDS = frozenset({"PRIVMSG", "NOTICE", "TOPIC", "PART", "QUIT", "KICK", "AWAY", "USER"})


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a message: a person, or a server, whose name is then in `nick`."""

    nick: str
    user: str | None = None
    host: str | None = None

    @classmethod
    def parse(cls, text: str) -> Source:
        """Parse `nick`, `nick!user@host` or `nick@host`."""
        rest, _, host = text.partition("@")
        nick, _, user = rest.partition("!")
        return cls(nick, user or None, host or None)

    def __str__(self) -> str:
        user = f"!{self.user}" if self.user else ""
        return f"{self.nick}{user}@{self.host}" if self.host else f"{self.nick}{user}"


@dataclass(frozen=True, slots=True)
class Message:
    """An IRC message. Tag values are unescaped; a tag without a value has the value ""."""

    command: str
    params: tuple[str, ...] = ()
    source: Source | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def nick(self) -> str:
        """The nick of the source, or "" if there is no source."""
        return self.source.nick if self.source else ""

    def param(self, index: int) -> str:
        """Return the parameter at `index` (negative counts from the end), or "" if missing."""
        return self.params[index] if -len(self.params) <= index < len(self.params) else ""

    def render(self) -> str:
        """Return the message as a line without CRLF.

        Raises InvalidMessage if any part contains CR, LF or NUL, or if a parameter before the last
        is empty, contains a space or begins with a colon: a server would parse another message.
        """
        parts = [self.command, *self.params[:-1]]
        for part in parts:
            if not part or " " in part or part.startswith(":"):
                raise InvalidMessage(f"{self.command}: {part!r} cannot be a middle parameter")
        if self.source:
            parts.insert(0, f":{self.source}")
        if self.tags:
            tags = (
                f"{key}={value.translate(_ESCAPED)}" if value else key
                for key, value in self.tags.items()
            )
            parts.insert(0, "@" + ";".join(tags))
        if self.params:
            # The colon is optional before a single word. Text always has it, as irc3's event
            # patterns, which plugins rely on, do not match without.
            text = self.params[-1]
            is_word = text and " " not in text and not text.startswith(":")
            is_text = self.command in _TEXT_COMMANDS or self.command.isdigit()
            parts.append(text if is_word and not is_text else f":{text}")
        line = " ".join(parts)
        if any(character in line for character in "\r\n\0"):
            raise InvalidMessage(f"{self.command}: a line cannot hold CR, LF or NUL")
        return line


def parse(line: str) -> Message | None:
    """Parse one line without its line end; return None if it has no command. Never raises."""
    # [@tags] [:source] command params [:trailing]. RFC 1459 allows several spaces between the
    # parts, RFC 2812 only one; real servers send several.
    rest = line.lstrip(" ")
    tags: dict[str, str] = {}
    source = None
    if rest.startswith("@"):
        word, rest = _word(rest)
        pairs = (item.partition("=") for item in word[1:].split(";"))
        # https://ircv3.net/specs/extensions/message-tags#escaping-values: a trailing backslash is
        # dropped, and so is one before a character that needs no escape.
        tags = {
            key: _ESCAPE.sub(lambda match: _UNESCAPED.get(match[1], match[1]), value)
            for key, _, value in pairs
            if key
        }
    if rest.startswith(":"):
        word, rest = _word(rest)
        source = Source.parse(word[1:])
    # The first " :" begins the trailing parameter, in which spaces and colons are literal. With the
    # prepended space a rest of ":text" is a trailing parameter too, not a command.
    head, colon, trailing = (" " + rest).partition(" :")
    words = [word for word in head.split(" ") if word]
    if not words:
        return None
    params = (*words[1:], trailing) if colon else tuple(words[1:])
    return Message(words[0].upper(), params, source, tags)


def strip_tags(line: str) -> str:
    """Return the line without its message tags, for consumers that do not support them."""
    return _word(line)[1] if line.startswith("@") else line


def decode(line: bytes) -> str:
    """Decode a line as UTF-8, else cp1252, else Latin-1; no byte is ever dropped.

    If only the end is invalid UTF-8, because a server cut a character in two, the text before it
    is still decoded as UTF-8.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return line[: error.start].decode("utf-8") + _legacy(line[error.start :])
        return _legacy(line)


class LineBuffer:
    """A buffer that splits received bytes into decoded lines.

    Bytes are buffered undecoded, as a multi-byte character may arrive in two reads.
    """

    def __init__(self, decoder: Callable[[bytes], str] = decode) -> None:
        self._decode = decoder
        self._rest = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> list[str]:
        """Add `data`; return the lines it completes, without line ends and without empty lines.

        A line ends with LF or CRLF. A line is truncated to `MAX_LINE` bytes, with a warning in the
        process log.
        """
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._append(end)
            if self._dropped:
                log.warning("irc.line_cut", kept=len(self._rest), dropped=self._dropped)
            if line := bytes(self._rest).removesuffix(b"\r"):
                lines.append(self._decode(line))
            self._rest.clear()
            self._dropped = 0
        self._append(rest)
        return lines

    def _append(self, data: bytes) -> None:
        room = MAX_LINE - len(self._rest)
        self._rest += data[:room]
        self._dropped += max(0, len(data) - room)


def _word(text: str) -> tuple[str, str]:
    word, _, rest = text.partition(" ")
    return word, rest.lstrip(" ")


def _legacy(line: bytes) -> str:
    # cp1252 leaves five bytes undefined; Latin-1 maps all 256.
    try:
        return line.decode("cp1252")
    except UnicodeDecodeError:
        return line.decode("latin-1")


# ISUPPORT, numeric 005 (https://modern.ircdocs.horse/#rplisupport-005), and case mappings.
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
_CASEMAPPINGS = {
    "ascii": _ASCII,
    "strict-rfc1459": _STRICT,
    "rfc1459": _RFC1459,
    # PRECIS; RFC 8265 obsoletes RFC 7613: https://ircv3.net/registry#casemapping
    "rfc7613": _ASCII,
    "rfc8265": _ASCII,
}


def casemap(name: str) -> Casemap:
    """Return the folding function of a CASEMAPPING value; an unknown value counts as `rfc1459`.

    The PRECIS mappings (`rfc7613`, `rfc8265`) are folded as ASCII. Only the server knows which
    Unicode nicks it treats as equal; Unicode case folding could merge two people ("straße" and
    "strasse"), ASCII folding cannot.
    """
    table = _CASEMAPPINGS.get(name.lower(), _RFC1459)
    return lambda text: text.translate(table)


def is_nick(name: str) -> bool:
    """Return whether this is a valid nick of a person, and no server or bouncer pseudo-user."""
    return _NICK.fullmatch(name) is not None


class ISupport:
    """The parameters that a server advertises in 005, with the protocol's defaults for the rest.

    `fold` is the folding function of CASEMAPPING, `unknown_casemapping` its value if we do not
    support it, else "". `prefix` maps symbols to member modes, highest first, as in
    {"@": "o", "+": "v"}. `chantypes` are the characters that a channel name can begin with,
    `statusmsg` the symbols that may precede one in a message target. `chanmodes` are the modes of
    types A to D: list modes, then modes that take an argument always, only when set, and never.
    `nicklen` is the maximum length of a nick, None if unknown. `linelen` is the maximum bytes of a
    line, including CRLF and excluding tags; `userlen` (with the `~` that servers prepend) and
    `hostlen` are those of the names. `bot` is the letter of the user mode that marks a bot, or "".
    """

    def __init__(self, tokens: Mapping[str, str] | None = None) -> None:
        self.tokens = tokens or {}
        get = self.tokens.get
        self.fold = casemap(get("CASEMAPPING") or "rfc1459")
        is_known = get("CASEMAPPING", "").lower() in ("", *_CASEMAPPINGS)
        self.unknown_casemapping = "" if is_known else self.tokens["CASEMAPPING"]
        modes = _PREFIX.fullmatch(get("PREFIX", "(ov)@+"))
        self.prefix = dict(zip(modes[2], modes[1], strict=False)) if modes else {}
        self.chantypes, self.statusmsg = get("CHANTYPES", "#&"), get("STATUSMSG", "")
        kinds = [*get("CHANMODES", _CHANMODES).split(","), "", "", "", ""]
        self.chanmodes = kinds[0], kinds[1], kinds[2], kinds[3]
        self.nicklen = max(self._number("NICKLEN", 9), 1) if "NICKLEN" in self.tokens else None
        self.linelen = min(max(self._number("LINELEN", 512), 512), MAX_LINELEN)
        self.userlen = min(self._number("USERLEN", 10), MAX_NAME) + 1
        self.hostlen = min(self._number("HOSTLEN", 63), MAX_NAME)
        self.bot = get("BOT", "")[:1]

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
        return ISupport(tokens)

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
    """Return `text` as a number of at most nine digits, else `default`; int() raises above 4300."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


_COLOURS = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9A-Fa-f]{6})?")
_UNSAYABLE = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# A right-to-left override could make a line read as somebody else's.
_UNSAYABLE |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
_COMBINING_MARKS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
# "Zalgo" text: of a stack of combining marks four are kept.
_STACKED = re.compile(f"([{_COMBINING_MARKS}]{{4}})[{_COMBINING_MARKS}]+")


def sanitize(text: str) -> str:
    """Remove control and formatting codes, bidirectional overrides and excess combining marks."""
    whole = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    return _STACKED.sub(r"\1", _COLOURS.sub("", whole).translate(_UNSAYABLE))


MIN_BUDGET = 4
"""The smallest budget in bytes: the longest UTF-8 encoding of a character."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"[ \t]*[^ \t]+")
_CLUSTER = regex.compile(r"\X")  # an extended grapheme cluster of Unicode Standard Annex 29
_MOSTLY_EMPTY = 3  # a line that uses less than 1/3 of its budget is filled with part of a word
_MIN_PIECE = 40  # bytes that must be free in a line for an overlong word to begin in it
_ACTION = "\x01ACTION "


def talk(kind: Talk, target: str, text: str) -> Message:
    """Return the message that says one line."""
    if kind == "ACTION":
        return Message("PRIVMSG", (target, f"{_ACTION}{text}\x01"))
    return Message(kind, (target, text))


def budget(isupport: ISupport, source: Source, kind: Talk, target: str) -> int:
    """Return how many bytes of text fit on a line from `source`, which is us, to `target`; at least
    `MIN_BUDGET`. An unknown user or host counts as the longest that the server allows."""
    # Others receive ":nick!user@host PRIVMSG target :text", within LINELEN bytes including CRLF.
    nick = max(len(source.nick.encode()), 1)
    user = len(source.user.encode()) if source.user else isupport.userlen
    host = len(source.host.encode()) if source.host else isupport.hostlen
    empty = talk(kind, target, "").render()
    taken = len(":!@ ") + nick + user + host + len(empty.encode()) + len("\r\n")
    return max(isupport.linelen - taken, MIN_BUDGET)


def split(text: str, budget_bytes: int) -> list[str]:
    """Split `text` into lines of at most `budget_bytes` of UTF-8 each, in order.

    Line breaks in `text` end a line; blank lines are dropped. A long line is split between words,
    and the white space at the split is dropped. A word is split between grapheme clusters, and
    begins in the current line, if it is longer than a line, or if moving it to the next line would
    leave the current one mostly empty (as in languages without spaces), unless it is a URL that
    fits on a line.
    NUL, which IRC cannot carry, is dropped; a lone surrogate becomes `?`.
    Raises ValueError if the budget is below `MIN_BUDGET`.
    """
    if budget_bytes < MIN_BUDGET:
        raise ValueError(f"a line needs {MIN_BUDGET} bytes at least, not {budget_bytes}")
    sendable = text.replace("\0", "").encode("utf-8", "replace").decode()
    return [
        line
        for paragraph in _LINE_BREAK.split(sendable)
        if paragraph.strip()
        for line in _lines(paragraph, budget_bytes)
        if line.strip()
    ]


def _lines(paragraph: str, budget_bytes: int) -> Iterator[str]:
    line = ""
    for word in _WORD.findall(paragraph):
        if _size(line + word) <= budget_bytes:
            line += word
            continue
        if not _fills(line, word, budget_bytes):
            if line:
                yield line
            line, word = "", word.lstrip(" \t")
        *full, line = _pieces(word, budget_bytes, line)  # the last piece may take further words
        yield from full
    yield line


def _fills(line: str, word: str, budget_bytes: int) -> bool:
    """Return whether to split a word that does not fit, instead of moving it to the next line."""
    if not line.strip():
        return False
    bare = word.lstrip(" \t")
    if _size(bare) > budget_bytes:
        return _size(line) + _MIN_PIECE <= budget_bytes
    return "://" not in bare and _size(line) * _MOSTLY_EMPTY <= budget_bytes


def _pieces(word: str, budget_bytes: int, piece: str) -> Iterator[str]:
    """Yield `piece` filled up with the beginning of `word`, then lines with the rest of it."""
    for cluster in _CLUSTER.findall(word):
        # Stacked combining marks can make a cluster longer than a line; split it by characters.
        for part in [cluster] if _size(cluster) <= budget_bytes else cluster:
            if piece and _size(piece + part) > budget_bytes:
                yield piece
                piece = ""
            piece += part
    yield piece


def _size(text: str) -> int:
    return len(text.encode())


class ReceiptStatus(Enum):
    """The outcome of a sent line; LOST if the connection closed before the server answered."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a sent line, with the server's `reason` for a refusal and our `nick` then."""

    status: ReceiptStatus
    reason: str = ""
    nick: str = ""


ACCEPTED, LOST = Receipt(ReceiptStatus.ACCEPTED), Receipt(ReceiptStatus.LOST)
