"""The wire format of IRC: decoding bytes into lines, parsing lines and rendering messages.

RFC 1459 section 2.3.1 with IRCv3 message tags (https://ircv3.net/specs/extensions/message-tags).
No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from harnesses.irc.protocol.errors import InvalidMessage

log = structlog.get_logger()

MAX_LINE = 64 * 1024
"""Maximum bytes kept of one line. Servers send at most 8191 bytes of tags and 512 of the rest."""

_UNESCAPED = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}
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
            parts.insert(0, "@" + ";".join(_tag(key, value) for key, value in self.tags.items()))
        if self.params:
            parts.append(self._last())
        line = " ".join(parts)
        if any(character in line for character in "\r\n\0"):
            raise InvalidMessage(f"{self.command}: a line cannot hold CR, LF or NUL")
        return line

    def _last(self) -> str:
        # The colon is optional before a single word. Text always has it, as irc3's event patterns,
        # which plugins rely on, do not match without.
        text = self.params[-1]
        plain = text and " " not in text and not text.startswith(":")
        is_text = self.command in _TEXT_COMMANDS or self.command.isdigit()
        return text if plain and not is_text else f":{text}"


def parse(line: str) -> Message | None:
    """Parse one line without its line end; return None if it has no command. Never raises."""
    # [@tags] [:source] command params [:trailing]. RFC 1459 allows several spaces between the
    # parts, RFC 2812 only one; real servers send several.
    rest = line.lstrip(" ")
    tags: dict[str, str] = {}
    source = None
    if rest.startswith("@"):
        word, rest = _word(rest)
        tags = _tags(word[1:])
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

    def __init__(self, decoder: Callable[[bytes], str] = decode, longest: int = MAX_LINE) -> None:
        self._decode, self._longest = decoder, longest
        self._rest = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> list[str]:
        """Add `data`; return the lines it completes, without line ends and without empty lines.

        A line ends with LF or CRLF. A line is truncated to `longest` bytes, with a warning in the
        process log.
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
    # https://ircv3.net/specs/extensions/message-tags#escaping-values: a trailing backslash is
    # dropped, and so is one before a character that needs no escape.
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
    # cp1252 leaves five bytes undefined; Latin-1 maps all 256.
    try:
        return line.decode("cp1252")
    except UnicodeDecodeError:
        return line.decode("latin-1")
