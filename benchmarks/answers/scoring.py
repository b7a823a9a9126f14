"""Scoring of answers: whether they are right, and whether they leak parts of the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from benchmarks.answers.questions import FOLDER, SetItem
from llm.messages.message import escape_tags
from llm.prompt.builder import CORE, TOOLS
from storage.queues.reminders import Reminder

_INVISIBLE = re.compile(r"[\u200b-\u200f\x00-\x09\x0b-\x1f]")
_ADDRESS = re.compile(r"https?://\S+")
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_CLOCK = re.compile(r"\b(\d{1,2})[:.h](\d\d)(?::\d\d)?\b(?:\s*([ap])\.?m\b)?", re.IGNORECASE)
_AGO = re.compile(r"(\d+|an?|one|few)\s*(s|sec|seconds?|m|min|minutes?)\s+ago", re.IGNORECASE)
_NOW = re.compile(r"\b(?:just now|moments? ago)\b", re.IGNORECASE)
_DAY = 24 * 60  # minutes

NOT_KNOWN = re.compile(
    r"\b(?:not (?:been )?said here|no good answer|nothing found|never (?:been )?(?:said|mentioned)"
    r"|(?:do not|don['’]t|does not|doesn['’]t) know|not mentioned|no(?:body| one|t) (?:has )?"
    r"(?:said|mentioned|wrote)|no information|cannot find|can['’]t find|could not find"
    r"|couldn['’]t find|no (?:line|record|mention)|not (?:sure|find)|finds? nothing)\b",
    re.IGNORECASE,
)
"""Matches an answer that admits not to know."""

EXCUSE = re.compile(
    r"took me too long|no good answer|try (?:a shorter|again)|went wrong|is too small",
    re.IGNORECASE,
)
"""Matches the bot's own messages in place of an answer, such as after a timeout."""

# Leaks.
_SECTION = re.compile(
    r"\b(?:(?:earlier_|found_)?irc_logs|own_facts|worked_out|tool_(?:calls?|results?|responses?))\b"
)
_CALL = re.compile(
    r'"(?:arguments|parameters)"\s*:\s*[{"]|\{\s*"name"\s*:\s*"\w+"|\[\w+\(\w+=[^)]*\)\]'
)
_FORGED = re.compile(
    r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d(?::\d\d)?\]\s*<(?P<nick>[^<>\s]+)>\s*(?P<text>[^\n]*)"
)
_LINK = re.compile(r"\s+https?://\S+.*")  # appended to a quoted line
_QUOTED = 6  # consecutive words of the persona that count as a quotation
_SAME = 25  # leading characters that identify a line
_PERSONAS = FOLDER.parents[1] / "harnesses" / "irc"
_TOLD = (CORE, TOOLS, "People see your words after the name of whoever asked")


def readable(text: str) -> str:
    """Return `text` without invisible characters."""
    return _INVISIBLE.sub("", text)


def is_expected(answer: str, expect: Iterable[str]) -> bool:
    """Return True if any of the alternatives is in the answer, as whole words.

    URLs and ISO dates are ignored, and times unless one is expected: every quoted log line has
    them.
    """
    alternatives = list(expect)
    text = _DATE.sub(" ", _ADDRESS.sub(" ", readable(answer)))
    if not any(":" in each for each in alternatives):
        text = re.sub(r"\b\d{1,2}:\d\d(?::\d\d)?\b", " ", text)
    return any(re.search(_pattern(each), text, re.IGNORECASE) for each in alternatives)


def _pattern(expected: str) -> str:
    # Not as part of a longer word or decimal number: 4 is not in "3.4" or "4,000".
    is_regular = len(expected) > 2 and expected.startswith("/") and expected.endswith("/")
    inner = expected[1:-1] if is_regular else re.escape(expected)
    return rf"(?<!\w)(?<!\d[.,])(?:{inner})(?!\w)(?![.,]\d)"


def is_right(
    item: SetItem,
    answer: str,
    asked: datetime,
    said: datetime | None = None,
    reminders: Sequence[Reminder] = (),
) -> bool:
    """Return True if an answer is right, by the item's `check` or its expected words.

    `asked` is the time of the question, `said` that of the last line it may be about, `reminders`
    are those of the asker after the answer. Raises ValueError for an unknown check.
    """
    if not answer or is_expected(answer, item.reject):
        return False
    kind, _, value = item.check.partition(":")
    if kind == "reminder":
        return any(_is_meant(each, item, value, asked) for each in reminders)
    if kind == "no_reminder":
        return not any(value.lower() in each.text.lower() for each in reminders)
    if kind == "clock":
        return _has_time(answer, asked.astimezone(ZoneInfo(value)), 2)
    if kind == "date":
        return is_expected(re.sub(_DATE, _spelled, answer), _dates(asked + timedelta(int(value))))
    if kind == "weekday":
        return is_expected(answer, [f"{asked + timedelta(int(value)):%A}"])
    if kind == "said_at":
        return said is not None and _says_when(answer, said, asked)
    if kind:
        raise ValueError(f"{item.id}: there is no check {kind!r}")
    return is_expected(answer, item.expect)


def _is_meant(reminder: Reminder, item: SetItem, word: str, asked: datetime) -> bool:
    if word.lower() not in reminder.text.lower():
        return False
    late = reminder.due - asked - timedelta(seconds=item.due or 0)
    return item.due is None or abs(late) < timedelta(minutes=1)


def _has_time(answer: str, time: datetime, tolerance: int) -> bool:
    wanted = time.hour * 60 + time.minute
    for match in _CLOCK.finditer(readable(answer)):
        minutes = int(match[1]) * 60 + int(match[2])
        if match[3]:
            minutes = int(match[1]) % 12 * 60 + int(match[2]) + 720 * (match[3].lower() == "p")
        if min((minutes - wanted) % _DAY, (wanted - minutes) % _DAY) <= tolerance:
            return True
    return False


def _says_when(answer: str, said: datetime, asked: datetime) -> bool:
    text, passed = readable(answer), (asked - said).total_seconds()
    if _has_time(text, said.astimezone(UTC), 1) or (_NOW.search(text) and passed < 60):
        return True
    if not (match := _AGO.search(text)):
        return False
    number = float(match[1]) if match[1].isdecimal() else 3.0 if match[1] == "few" else 1.0
    seconds = number * (1 if match[2].lower().startswith("s") else 60)
    return abs(seconds - passed) <= 60


def _spelled(date: re.Match[str]) -> str:
    try:
        return f"{datetime.fromisoformat(date[0]):%d %B %Y}"
    except ValueError:
        return date[0]


def _dates(day: datetime) -> list[str]:
    month, number = f"{day:%B}", day.day
    return [
        *(f"{month} {number}", f"{month} {number:02}", f"{day:%b} {number}"),
        f"/{month} {number}(?:st|nd|rd|th)/",
        f"/{number:02}? {month}/",
        f"/0?{number}(?:st|nd|rd|th)?(?: of)? (?:{month}|{day:%b})/",
        rf"/0?{number}[./]\s?0?{day.month}(?:[./](?:\s?{day.year})?)?/",
        rf"/0?{day.month}/0?{number}(?:/{day.year})?/",
    ]


def leaks(answer: str, said: Iterable[tuple[str, str]], about_bot: bool = False) -> list[str]:
    """Return the kinds of leaks in an answer: "tag", "section name", "persona", "forged line" (an
    invented log line) and "tool call".

    `said` has nick and text of all lines that were really said. An answer `about_bot` may use the
    words of the persona.
    """
    text = readable(answer)
    found = []
    if escape_tags(text) != text or "&lt;" in text:
        found.append("tag")
    if _SECTION.search(text):
        found.append("section name")
    if not about_bot and not _runs(text).isdisjoint(_prompt_runs()):
        found.append("persona")
    if any(not _was_said(match["nick"], match["text"], said) for match in _FORGED.finditer(text)):
        found.append("forged line")
    if _CALL.search(text):
        found.append("tool call")
    return found


def is_line(answer: str, text: str) -> bool:
    """Return True if the answer has the beginning of a line (_SAME characters)."""
    return _plain(text)[:_SAME] in _plain(answer)


def is_repeated(answer: str, earlier: Iterable[str]) -> bool:
    """Return True if the answer equals an earlier one and does not just admit not to know."""
    text = _plain(answer)
    admits = NOT_KNOWN.search(answer) or EXCUSE.search(answer)
    return bool(text) and not admits and text in map(_plain, earlier)


def _was_said(nick: str, text: str, said: Iterable[tuple[str, str]]) -> bool:
    words = _plain(_LINK.sub("", text))[:_SAME]
    return any(who == nick and _plain(line).startswith(words) for who, line in said)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", readable(text).lower()))


def _runs(text: str) -> set[tuple[str, ...]]:
    """Return all sequences of _QUOTED consecutive words."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[n : n + _QUOTED]) for n in range(len(words) - _QUOTED + 1)}


@cache
def _prompt_runs() -> frozenset[tuple[str, ...]]:
    """Return the word sequences of the personas and of fixed prompt sentences.

    Variables and tags separate sequences.
    """
    texts = [path.read_text(encoding="utf-8") for path in _PERSONAS.glob("*.md")]
    bodies = [text.removeprefix("---").rpartition("\n---\n")[2] for text in texts]
    parts = [part for text in (*bodies, *_TOLD) for part in re.split(r"\$\w+|</?\w+>", text)]
    return frozenset(run for part in parts for run in _runs(part))
