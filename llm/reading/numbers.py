"""Numbers in digits and words, and durations: "twenty-one", "2 hours", "1h30", "half an hour"."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from llm.reading.vocabulary import Sentence

_MAX_DIGITS = 12
_MAX_TOKENS = 24  # of a duration
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_SECONDS["fortnight"] = 2 * _SECONDS["week"]
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration; the length of a month depends on the calendar. `unit` is its last unit, and
    `count` the number of these."""

    months: Fraction
    seconds: Fraction
    unit: str
    count: Fraction

    @classmethod
    def of(cls, count: Fraction | int, unit: str) -> Duration:
        """Return a duration of so many units."""
        months, seconds = (table.get(unit, 0) * count for table in (_MONTHS, _SECONDS))
        return cls(Fraction(months), Fraction(seconds), unit, Fraction(count))

    @property
    def roughly(self) -> timedelta:
        """Its length with months of average length. Raises OverflowError."""
        return timedelta(days=float(self.months) * 30.4375, seconds=float(self.seconds))

    @property
    def of_unit(self) -> timedelta:
        """The length of its last unit."""
        return Duration.of(1, self.unit).roughly

    @property
    def is_of_days(self) -> bool:
        """True if it consists of whole days and months."""
        return self.months.denominator == 1 and self.seconds % _SECONDS["day"] == 0


def numbers_in_digits(text: str) -> str:
    """Return a text with its numbers in words replaced by digits: "2 plus twenty-one" is "2 plus
    21". An article alone is no number."""
    sentence, at, parts, done = Sentence(text), 0, [], 0
    while at < len(sentence):
        found = number_at(sentence, at) if sentence.may_begin(at) else None
        if found and sentence.may_end(found[1]) and sentence.word(found[1] - 1).isalpha():
            value = found[0]
            told = str(value) if value.denominator == 1 else str(float(value))
            parts += [text[done : sentence.matches[at].start()], told]
            done = sentence.matches[found[1] - 1].end()
        at = found[1] if found else at + 1
    return "".join(parts) + text[done:]


def number_at(sentence: Sentence, at: int) -> tuple[Fraction, int] | None:
    """Return the number at a position, and the position after it."""
    word = sentence.word(at)
    if word[:1].isdecimal() and word.isascii():
        after = at + 1
        cents = sentence.word(after + 1)
        is_glued = sentence.is_glued(after) and sentence.is_glued(after + 1)
        if sentence.word(after) == "," and is_glued and cents.isdecimal() and len(cents) < 3:
            word, after = f"{word}.{cents}", after + 2  # "1,5 Stunden"
        digits, _, decimals = word.partition(".")
        if not (digits + decimals).isdecimal() or len(word) > _MAX_DIGITS:
            return None
        scale = sentence.phrase("scale", after)
        if scale and int(scale[0]) > 100:  # "1.5 million", but "50 cent"
            return Fraction(word) * int(scale[0]), scale[1]
        return Fraction(word), after
    return _in_words(sentence, at)


def _in_words(sentence: Sentence, at: int) -> tuple[Fraction, int] | None:
    """Return a number in words: of each group of three digits first the hundreds, then the tens."""
    total, part, room, largest, joint, end = 0, 0, 1000, 10**12, "", at
    if sentence.word(at) in ("a", "ein") and sentence.phrase("scale", at + 1):
        part, room, end = 1, 0, at + 1
    while True:
        start = sentence.skip(joint, end) if joint else end
        if sentence.word(end) == "-" and not (sentence.is_glued(end) and sentence.is_glued(start)):
            start = end  # "twenty - one" is a sum
        if (number := sentence.phrase("number", start)) and int(number[0]) < room:
            value, end = int(number[0]), number[1]
            part, room, joint = part + value, 0, ""
            if value % 10 == 0 and value >= 20:  # "twenty-one"
                room, joint = 10, "after_tens"
        elif not (scale := sentence.phrase("scale", end)) or int(scale[0]) >= largest:
            break
        elif int(scale[0]) > 100:
            largest, end = int(scale[0]), scale[1]
            total, part, room, joint = total + (part or 1) * largest, 0, 1000, "after_hundreds"
        elif part < 100:  # "two hundred and five"
            part, room, joint, end = (part or 1) * 100, 100, "after_hundreds", scale[1]
        else:
            break
    return (Fraction(total + part), end) if end > at else None


def count_at(sentence: Sentence, at: int) -> tuple[Fraction, int] | None:
    """Return the number before a unit: also "a", "half an", "a couple of", "2 and a half"."""
    found = sentence.phrase("count", at)
    if found is None or (sentence.word(at) == "a" and sentence.word(at + 1)[:1].isdecimal()):
        number = number_at(sentence, found[1] if found else at)
        if number is None:
            return None
        half = sentence.phrase("and_half", number[1])
        return (number[0] + Fraction(half[0]), half[1]) if half else number
    if found[0] == "1" and (number := number_at(sentence, at)):
        return number  # "a hundred"
    return Fraction(found[0]), found[1]


def duration_at(sentence: Sentence, at: int) -> tuple[Duration, int] | None:
    """Return the duration at a position, and the position after it: "2 days, 3 hours and 5 min"."""
    months = seconds = Fraction(0)
    unit, count, end, start = "", Fraction(1), at, at
    while start < at + _MAX_TOKENS and (part := _part_at(sentence, start)):
        count, unit, end = part
        added = Duration.of(count, unit)
        months, seconds = months + added.months, seconds + added.seconds
        minutes = sentence.word(end)
        is_last = sentence.is_glued(end) and sentence.may_end(end + 1)
        if unit == "hour" and is_last and minutes.isdecimal() and len(minutes) == 2:
            seconds, end = seconds + 60 * int(minutes), end + 1  # "1h30"
        start = end + 1 if sentence.word(end) == "," else end
        start = sentence.skip("and", start)
    return (Duration(months, seconds, unit, count), end) if end > at else None


def _part_at(sentence: Sentence, at: int) -> tuple[Fraction, str, int] | None:
    article = sentence.phrase("count", at)
    if period := sentence.phrase("period", article[1] if article and article[0] == "1" else at):
        return Fraction(int(period[0]), 60), "minute", period[1]
    count = count_at(sentence, at)
    if count is None:
        return None
    unit = sentence.phrase("unit", count[1])
    if unit is None and sentence.word(count[1] - 1)[-1].isdecimal():
        unit = sentence.phrase("short_unit", count[1])
    if unit is None or not (sentence.may_end(unit[1]) or sentence.word(unit[1]).isdecimal()):
        return None
    half = sentence.phrase("and_half", unit[1])
    more = Fraction(half[0]) if half else Fraction(0)
    return count[0] + more, unit[0], half[1] if half else unit[1]
