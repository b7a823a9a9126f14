"""Time zones by common names: cities, countries, abbreviations."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zoneinfo import available_timezones

from llm.reading.vocabulary import Sentence

_MOST_WORDS = 6  # tokens of a name: "america/argentina/buenos aires"
_NO_CITIES = ("Etc/", "SystemV/", "US/", "posix/", "right/")


@dataclass(frozen=True, slots=True)
class ZonedPlace:
    """A place by its usual `name` and the IANA name of its time zone, "" for several."""

    name: str
    zone: str


def place_at(sentence: Sentence, at: int) -> tuple[ZonedPlace, int] | None:
    """Return the place at a position, and the position after it and its country, if that follows:
    "Sydney, Australia"."""
    found = _name_at(sentence, at)
    if found is None or not found[0].zone:
        return None
    place, end = found
    country = _name_at(sentence, end + (sentence.word(end) == ","))
    return place, country[1] if country and country[0].zone in ("", place.zone) else end


def zone_name(name: str) -> str | None:
    """Return the IANA name of the time zone of a city, a country with a single zone, an
    abbreviation or an IANA name, in any case; None if it is unknown."""
    sentence = Sentence(name.replace("_", " ").strip(" ?.!,"))
    found = place_at(sentence, sentence.skip("the", 0)) or place_at(sentence, 0)
    return found[0].zone if found and found[1] == len(sentence) else None


def _name_at(sentence: Sentence, at: int) -> tuple[ZonedPlace, int] | None:
    for end in range(min(at + _MOST_WORDS, len(sentence)), at, -1):
        if place := _places().get(sentence.words[at:end]):
            return place, end
    return None


@cache
def _places() -> Mapping[tuple[str, ...], ZonedPlace]:
    """Return the places by the words of their full names, their cities, and the names in
    `places.toml`; of several zones for one city the alphabetically first."""
    zones = available_timezones() - {"localtime", "Factory"}
    named = [(name, name) for name in zones if "/" in name]
    cities = [name for name in sorted(zones, reverse=True) if not name.startswith(_NO_CITIES)]
    named += [(name.rpartition("/")[2], name) for name in cities if "/" in name]
    stored = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for zone, listed in stored.items():
        # Zones that this system's database does not have are left out, as ZoneInfo would raise.
        if not zone or zone in zones:
            named += [(name, zone) for name in listed.split(",")]
    spelled = [(" ".join(name.replace("_", " ").split()), zone) for name, zone in named]
    return {Sentence(name).words: ZonedPlace(name, zone) for name, zone in spelled if name}
