"""A turn of the day: who asks what and where, what a strong model does, and what it must be
shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Door = Literal["channel", "greenhouse", "private", "web", "terminal", "cron"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: the first tool of these `names` that is offered.

    `arguments` are values, each under the first of its names that the tool knows; one that it does
    not know is left out, or with `is_strict` counts as missing. `verbatim` are arguments sent as
    they stand, for a tool whether it is offered or not.
    """

    names: tuple[str, ...]
    arguments: tuple[tuple[tuple[str, ...], Any], ...] = ()
    verbatim: str = ""
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn.

    - `moves`: rounds of calls before the `answer`, whose text may have placeholders `{line:WORDS}`
      for the line of the log that has these words; `preface` and `thought` go with the first calls.
    - `shows`: words of log lines that the question is about: the model must have seen them before
      it answers. `hides`: words that the first prompt must not have.
    - `before`: lines that people say first, each "nick: words".
    - `read`: the part of the answer that people get, if it is not the answer itself.
    - `stops_after`: words of the answer at which a limit stops it, until it is asked to go on.
    - `is_silent_at_first`: the first reply is thoughts alone, up to a limit.
    - `has_errors`: a call is meant to fail. `by_rule`: it may be answered without the model.
    - `image`: whether a picture is attached.
    """

    number: int
    name: str
    who: str
    text: str
    answer: str
    door: Door = "channel"
    moves: tuple[tuple[Call, ...], ...] = ()
    shows: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    read: str = ""
    preface: str = ""
    thought: str = ""
    stops_after: str = ""
    is_silent_at_first: bool = False
    slow: bool = False
    has_errors: bool = False
    by_rule: bool = False
    image: bool = False

    @property
    def expected(self) -> str:
        """The text that people should read."""
        return self.read or self.answer


def search(words: str, **more: Any) -> Call:
    """Return a search of the log."""
    return Call(
        ("search_log", "search_chat_logs"),
        ((("query", "q", "words"), words), *_named(more)),
    )


def tool(*names: str, **arguments: Any) -> Call:
    """Return a call of the first tool of these names; arguments it does not know are left out."""
    return Call(names, _named(arguments))


def exact(*names: str, **arguments: Any) -> Call:
    """Return a call of a tool that has to know all of the arguments."""
    return Call(names, _named(arguments), is_strict=True)


def raw(name: str, arguments: str) -> Call:
    """Return a call that is sent as it stands."""
    return Call((name,), verbatim=arguments)


_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "who": ("who", "nick", "nicks", "people", "person"),
    "text": ("text", "what", "message", "words"),
    "question": ("question", "prompt", "text", "what", "words"),
}


def _named(arguments: Mapping[str, Any]) -> tuple[tuple[tuple[str, ...], Any], ...]:
    return tuple((_SYNONYMS.get(key, (key,)), value) for key, value in arguments.items())
