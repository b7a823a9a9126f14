"""Who is who in a channel: nicks, the people behind them, and who a line speaks to."""

from __future__ import annotations

from collections.abc import Callable

_TAIL = "`_|^-0123456789"  # what people hang on a nick that is taken
_SHORTEST = 3  # letters of a nick that is recognised in the middle of a line
_AROUND = ",:;!?()<>\"'."


class People:
    """The people who have been seen, by number; a person keeps it under a new nick."""

    def __init__(self, is_common: Callable[[str], bool]) -> None:
        """`is_common` says of a word that it is more likely just that than somebody's nick."""
        self._is_common = is_common
        self._by_nick: dict[str, int] = {}
        self._by_stem: dict[str, int] = {}
        self._count = 0

    def person(self, nick: str) -> int:
        """The number of whoever has `nick`, a new one for a new nick."""
        key = nick.lower()
        if key not in self._by_nick:
            self._know(key, self._count)
            self._count += 1
        return self._by_nick[key]

    def on_rename(self, old: str, new: str) -> None:
        """Whoever was `old` is `new` from now on."""
        self._know(new.lower(), self.person(old))

    def find_addressee(self, speaker: int, text: str) -> tuple[int | None, frozenset[int]]:
        """Whom a line speaks to, if that is clear, and everybody it names but its speaker.

        A leading `nick:` or `nick,` always counts; elsewhere a nick of three letters or more that
        is no common word. Who is named alone is spoken to.
        """
        tokens = text.split()
        if tokens and tokens[0][-1] in ":,":
            leading, rest = self._leading(tokens[0]), tokens[1:]
        else:
            leading, rest = None, tokens
        found = {person for token in rest if (person := self._find_named(token)) is not None}
        if leading is not None:
            found.add(leading)
        found.discard(speaker)
        if leading not in (None, speaker):
            return leading, frozenset(found)
        return (next(iter(found)) if len(found) == 1 else None), frozenset(found)

    def _know(self, key: str, person: int) -> None:
        self._by_nick[key] = person
        stem = key.rstrip(_TAIL)
        if len(stem) >= _SHORTEST:
            self._by_stem[stem] = person

    def _leading(self, token: str) -> int | None:
        person = self._find(token.strip(_AROUND).lower())
        return self._find(token[:-1].lower()) if person is None else person

    def _find_named(self, token: str) -> int | None:
        word = token.strip(_AROUND).lower()
        if len(word) < _SHORTEST or self._is_common(word):
            return None
        return self._find(word)

    def _find(self, key: str) -> int | None:
        if key in self._by_nick:
            return self._by_nick[key]
        stem = key.rstrip(_TAIL)
        return self._by_stem.get(stem) if len(stem) >= _SHORTEST else None
