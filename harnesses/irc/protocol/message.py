"""The wire format of IRC: bytes to lines, lines to messages, messages to lines.

RFC 1459 section 2.3.1 with IRCv3 message tags (https://ircv3.net/specs/extensions/message-tags).
Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from harnesses.irc.protocol.errors import InvalidMessage

log = structlog.get_logger()

LONGEST_LINE = 64 * 1024
"""Bytes of one line that are kept; servers send at most 8191 of tags and 512 of the rest."""

_UNESCAPED = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}
_ESCAPED = str.maketrans({";": "\\:", " ": "\\s", "\\": "\\\\", "\r": "\\r", "\n": "\\n"})
_TEXT_COMMANDS = frozenset({"PRIVMSG", "NOTICE", "TOPIC", "PART", "QUIT", "KICK", "AWAY", "USER"})


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a line: a person, or a server (whose name is then `nick`)."""

    nick: str
    user: str | None = None
    host: str | None = None

    @classmethod
    def parse(cls, text: str) -> Source:
        """Read `nick`, `nick!user@host` or `nick@host`."""
        rest, _, host = text.partition("@")
        nick, _, user = rest.partition("!")
        return cls(nick, user or None, host or None)

    def __str__(self) -> str:
        user = f"!{self.user}" if self.user else ""
        return f"{self.nick}{user}@{self.host}" if self.host else f"{self.nick}{user}"


@dataclass(frozen=True, slots=True)
class Message:
    """One IRC message. Tag values are unescaped; a tag without a value has the value ""."""

    command: str
    params: tuple[str, ...] = ()
    source: Source | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def param(self, index: int) -> str:
        """Return the parameter at `index`, or "" when the server left it out."""
        return self.params[index] if -len(self.params) <= index < len(self.params) else ""

    def render(self) -> str:
        """Return the message as a line without its line end.

        Raises InvalidMessage when a part holds CR, LF or NUL, or when a parameter before the
        last is empty, has a space, or begins with a colon: it would be read as something else.
        """
        parts = [self.command, *self.params[:-1]]
        for part in parts:
            if not part or " " in part or part.startswith(":"):
                raise InvalidMessage(f"{self.command}: {part!r} cannot be a middle parameter")
        if self.source:
            parts.insert(0, f":{self.source}")
        if self.tags:
            parts.insert(0, "@" + ";".join(_tag(key, value) for key, value in self.tags.items()))
        if self.params:
            parts.append(self._last())
        line = " ".join(parts)
        if any(character in line for character in "\r\n\0"):
            raise InvalidMessage(f"{self.command}: a line cannot hold CR, LF or NUL")
        return line

    def _last(self) -> str:
        text = self.params[-1]
        plain = text and " " not in text and not text.startswith(":")
        is_text = self.command in _TEXT_COMMANDS or self.command.isdigit()
        return text if plain and not is_text else f":{text}"


def parse(line: str) -> Message | None:
    """Read one line without its line end; None when it has no command. Never raises."""
    # [@tags] [:source] command params [:trailing]; RFC 1459 allows one space between the parts,
    # real servers send several.
    rest = line.lstrip(" ")
    tags: dict[str, str] = {}
    source = None
    if rest.startswith("@"):
        word, rest = _word(rest)
        tags = _tags(word[1:])
    if rest.startswith(":"):
        word, rest = _word(rest)
        source = Source.parse(word[1:])
    # The first " :" begins the last parameter, in which spaces and colons mean nothing; the blank
    # put before the rest finds it also where a line has nothing else.
    head, colon, trailing = (" " + rest).partition(" :")
    words = [word for word in head.split(" ") if word]
    if not words:
        return None
    params = (*words[1:], trailing) if colon else tuple(words[1:])
    return Message(words[0].upper(), params, source, tags)


def strip_tags(line: str) -> str:
    """Return the line without its message tags, for readers that do not know tags."""
    return _word(line)[1] if line.startswith("@") else line


def decode(line: bytes) -> str:
    """Decode a line: UTF-8, else cp1252, else latin-1, so that no byte is ever dropped.

    When only the end is not UTF-8, as when a server cut a character in two, the text before it
    stays UTF-8.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return line[: error.start].decode("utf-8") + _legacy(line[error.start :])
        return _legacy(line)


class LineBuffer:
    """Collects received bytes and gives out whole lines, decoded.

    It buffers bytes, not text: a character may arrive in two reads.
    """

    def __init__(
        self, decoder: Callable[[bytes], str] = decode, longest: int = LONGEST_LINE
    ) -> None:
        self._decode, self._longest = decoder, longest
        self._rest = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> list[str]:
        """Add `data`; return the lines it completes, without line ends and without empty ones.

        A line ends with LF or CRLF. What is beyond `longest` bytes of one line is dropped, and
        said in our own log.
        """
        *ends, rest = data.split(b"\n")
        lines = [self._complete(end) for end in ends]
        self._append(rest)
        return [self._decode(line) for line in lines if line]

    def _complete(self, end: bytes) -> bytes:
        self._append(end)
        if self._dropped:
            log.warning("irc.line_cut", kept=len(self._rest), dropped=self._dropped)
        line = bytes(self._rest).removesuffix(b"\r")
        self._rest.clear()
        self._dropped = 0
        return line

    def _append(self, data: bytes) -> None:
        room = self._longest - len(self._rest)
        self._rest += data[:room]
        self._dropped += max(0, len(data) - room)


def _word(text: str) -> tuple[str, str]:
    word, _, rest = text.partition(" ")
    return word, rest.lstrip(" ")


def _tags(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(";"))
    return {key: _unescape(value) for key, _, value in pairs if key}


def _tag(key: str, value: str) -> str:
    return f"{key}={value.translate(_ESCAPED)}" if value else key


def _unescape(value: str) -> str:
    # A lone backslash at the end is dropped, and one before any other character too, as
    # https://ircv3.net/specs/extensions/message-tags#escaping-values demands.
    if "\\" not in value:
        return value
    characters = iter(value)
    return "".join(
        _unescape_char(next(characters, "")) if character == "\\" else character
        for character in characters
    )


def _unescape_char(character: str) -> str:
    return _UNESCAPED.get(character, character)


def _legacy(line: bytes) -> str:
    # cp1252 leaves five bytes undefined; latin-1 has all 256.
    try:
        return line.decode("cp1252")
    except UnicodeDecodeError:
        return line.decode("latin-1")
