"""Commands in plain words: the command that a sentence of a known kind asks for.

What destroys anything needs the exact words of its command: other words for it only say how it is
done (`forget` without words).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llm.client.profile import Profile
from llm.memory.room import fact_key, statement_in
from llm.reading.reading import Reading, Slots, speaks_of_all, strip_frame, words_beside_frame
from llm.reading.times import without_time

_PLAIN = {
    "help": ("about", "abilities"),
    "reminders": ("reminders", ""),
    "counts": ("stats", ""),
    "stop": ("stop", ""),
    "more": ("more", ""),
}
"""Commands that need no slot, by the kinds that ask for them."""

_TOLD = {"forget_me": ("forget", ""), "nolog": ("help", "nolog"), "clear": ("help", "clear")}
"""Commands that only say how something is destroyed."""

EXACT = {
    "memory": ("memory", ""),
    "notes": ("memory", ""),
    "reminders": ("reminders", ""),
    "ping": ("ping", ""),
    "version": ("version", ""),
    "stats": ("stats", ""),
    "help": ("help", ""),
    "commands": ("help", ""),
    "clear": ("clear", ""),
    "stop": ("stop", ""),
    "stop it": ("stop", ""),
    "more": ("more", ""),
    "forget our conversation": ("clear", ""),
    "forget this conversation": ("clear", ""),
}
"""Commands in their exact words, which need no reading."""

_ALARM = "the time is up"
_CERTAIN = {"all": 0.7, "whole sentences": 0.9}
"""The least certainty by `Profile.shortcuts`."""


@dataclass(frozen=True, slots=True)
class PlainCommand:
    """A command by name, its argument, and the pieces of the sentence that were taken over; None
    if it was not looked at what the sentence says beside its kind."""

    name: str
    words: str = ""
    free: tuple[str, ...] | None = ()


def plain_command(
    reading: Reading, profile: Profile, facts: Sequence[str] = ()
) -> PlainCommand | None:
    """Return the command that a sentence asks for, None if it asks for none, lacks what that needs,
    or may ask a capable model for more than that. `facts` are the keys of the asker's own facts."""
    exact = EXACT.get(reading.text.casefold().strip(" .!"))
    if exact:
        return PlainCommand(*exact)
    if reading.certainty < _CERTAIN[profile.shortcuts]:
        return None
    found = _command(reading, facts)
    if found is None or (found.free is None and profile.shortcuts != "all"):
        return None
    return found if profile.may_shortcut(found.free or ()) else None


def asks_for_fact(reading: Reading) -> bool:
    """Return whether a sentence may ask for a fact about the asker, so that the keys of these are
    worth loading."""
    return reading.kind in ("recall", "forget_fact")


def _command(reading: Reading, facts: Sequence[str]) -> PlainCommand | None:
    kind, slots = reading.kind, reading.slots
    if kind in _TOLD:
        return PlainCommand(*_TOLD[kind], None)
    if kind in _PLAIN and not (kind == "counts" and (slots.topic or slots.person or slots.span)):
        return PlainCommand(*_PLAIN[kind], None)
    match kind:
        case "remind":
            return _reminder(reading.text, slots)
        case "schedule":
            order = without_time(slots.words)
            return PlainCommand("schedule", slots.words, (order,)) if order else None
        case "cancel_reminder":
            beside = words_beside_frame(reading.text, kind)
            what = beside if slots.number is None else str(slots.number)
            # Without a name or a number they are listed: a vague wish cancels nothing.
            words = f"cancel {what}" if what else ""
            is_whole = beside == "all" or (slots.number is not None and beside == what)
            return PlainCommand("reminders", words, () if is_whole else None)
        case "remember" if slots.words:
            # "note: bring matches" is no fact "bring", as ".remember tea oolong" is one; but the
            # time zone, which reminders use, is a fact.
            note, key = f"that {slots.words}", fact_key(slots.words.partition(" ")[0])
            told = statement_in(note) if key != "timezone" else None
            is_note = told is not None and not told.key
            return PlainCommand("remember", note if is_note else slots.words, (slots.words,))
        case "recall":
            key = _key_in(reading.text, facts)
            return PlainCommand("recall", key, None) if key else PlainCommand("memory", "", None)
        case "forget_fact":
            key = _key_in(reading.text, facts)
            return PlainCommand("forget", key, None) if key else None
        case "about_bot":
            return PlainCommand("about", "identity", None)
    return None


def _reminder(said: str, slots: Slots) -> PlainCommand | None:
    """Return the reminder of what the sentence says at the time that it names, None without one."""
    # The command reminds the asker alone: "nudge dave tomorrow" is for the model.
    if slots.person and slots.words.casefold().startswith(slots.person.casefold()):
        return None
    # The frame may have taken the word before the day: "remind me on the 21st at 9 to go".
    whole = min(
        (slots.words, f"on {slots.words}"), key=lambda each: len(without_time(each) or each)
    )
    # "an alarm for 7" has neither the word before a time of day nor a text.
    for words in (whole, f"{slots.words} {_ALARM}", f"at {slots.words} {_ALARM}"):
        if text := without_time(words):
            break
    else:
        return None
    # "in 20 minutes tell me to leave": the frame stands behind the time.
    if words.split()[:1] == said.split()[:1] and words.endswith(text):
        bare = strip_frame(text, "remind") or text
        words, text = words.removesuffix(text) + bare, bare
    # A model that sees the talk knows of what else than an alarm, and can remind others.
    is_vague = text == _ALARM or speaks_of_all(said)
    return PlainCommand("remind", words, None if is_vague else (text,))


def _key_in(text: str, facts: Sequence[str]) -> str:
    """Return the longest key of a fact that stands in a text, "" if there is none."""
    said = _comparable(text)
    found = [key for key in facts if f" {_comparable(key).strip()} " in said]
    return max(found, key=len, default="")


def _comparable(text: str) -> str:
    words = text.lower().replace("_", " ").replace("favorite", "favourite").split()
    return f" {' '.join(word.strip('.,;:!?') for word in words)} "
