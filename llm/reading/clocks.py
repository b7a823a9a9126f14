"""Times of day in plain words: "at 18:00", "half past six", "6pm", "18 Uhr 30", "a las 5"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import time

from llm.reading.days import goes_no_further
from llm.reading.vocabulary import Sentence

_MOST_CLOCKS = 24  # in a list


@dataclass(frozen=True, slots=True)
class ClockTime:
    """A time of day as written. `half` is "a" or "p" for am or pm, `part` a part of the day.

    One `in_words`, "half past six", may be meant before or after noon. Its `certainty` is 2 if it
    is surely a time of day, 1 at the beginning or end of a text, 0 only beside a day; a `bare` one
    is a number alone, as in "at 5". One that `is_choice` follows "or".
    """

    hour: int
    minute: int = 0
    certainty: int = 0
    half: str = ""
    part: str = ""
    in_words: bool = False
    named: bool = False
    bare: bool = False
    is_choice: bool = False

    def time_in(self, part: str = "") -> tuple[time, int] | None:
        """Return the time of day in a part of the day, and the number of days to add to the day:
        "tonight at 1" is tomorrow. None if there is no such time."""
        hour, part = self.hour, self.part or part
        if self.named:
            return time(hour), int(hour == 0 and bool(part))
        if self.half and not 1 <= hour <= 12:
            return None
        if self.half:
            hour = hour % 12 + (12 if self.half == "p" else 0)
        elif part in ("night", "tonight") and (hour == 12 or hour < 5):
            return time(hour % 12, min(self.minute, 59)), 1
        elif part in ("afternoon", "evening", "night", "tonight") and hour <= 12:
            hour = hour % 12 + 12
        return (time(hour, self.minute), 0) if hour < 24 and self.minute < 60 else None


def clocks_at(
    sentence: Sentence, at: int, certainty: int
) -> tuple[Sequence[ClockTime], int] | None:
    """Return the times of day at a position, the first of at least this certainty, and the position
    after them: "at 9, 12 and 17". A comma may precede them."""
    first = clock_at(sentence, at + (sentence.word(at) == ","))
    if first is None or first[0].certainty < certainty:
        return None
    clocks, end = [first[0]], first[1]
    listed, after = list(clocks), end  # those after commas count if it is sure that they are some
    while len(listed) < _MOST_CLOCKS:
        start = after + (sentence.word(after) == ",")
        joint = sentence.phrase("and", start)
        following = clock_at(sentence, joint[1] if joint else start, listed=True)
        if (start == after and joint is None) or following is None:
            break
        after = following[1]
        listed.append(replace(following[0], is_choice=bool(joint and joint[0] == "or")))
        word = sentence.word(after)
        is_end = not word or word in ":;" or sentence.phrase("filling", after) is not None
        if joint or following[0].certainty or is_end:
            clocks, end = list(listed), after
    return clocks, end


def clock_at(sentence: Sentence, at: int, *, listed: bool = False) -> tuple[ClockTime, int] | None:
    """Return the time of day at a position, and the position after it.

    A number in words counts only after "at", or if it is `listed` after another time.
    """
    preposition = sentence.after("at", at)
    start = at if preposition is None else preposition
    certainty = 2 if sentence.phrase("sure_at", at) else int(preposition is not None)
    if named := sentence.phrase("named_clock", start):
        certainty = 2 if sentence.phrase("sure_clock", start) else certainty
        return ClockTime(int(named[0]), certainty=certainty, named=True), named[1]
    if sentence.word(at) == "o" and sentence.word(at - 1).isdecimal():
        return None  # "2 o 3" is a choice in Spanish and Italian
    past = sentence.phrase("past_hour", start)
    number = past[1] if past else start
    hour, _, minute = sentence.word(number).replace(".", ":").partition(":")
    in_words = sentence.phrase("number", number)
    if in_words and 1 <= int(in_words[0]) <= 12:
        hour, end = in_words
    elif (
        hour.isdecimal()
        and len(hour) < 3
        and (not minute or (len(minute) == 2 and minute.isdecimal()))
    ):
        end = number + 1
    else:
        return None
    clock = ClockTime(int(hour), int(minute or 0), certainty, in_words=bool(in_words or past))
    if past:
        minutes = int(past[0])
        certainty = max(certainty, 1) if minutes == -30 else 2  # "halb" may be half of something
        clock = replace(clock, hour=(clock.hour - (minutes < 0)) % 24, minute=minutes % 60)
    is_clear = bool(past) or ":" in sentence.word(number)
    certainty = 2 if ":" in sentence.word(number) else certainty
    if half := sentence.phrase("half", end):
        clock, end, certainty, is_clear = replace(clock, half=half[0]), half[1], 2, True
    elif hours := sentence.phrase("oclock", end) or sentence.phrase("hours", end):
        is_clear, certainty = True, 2 if sentence.phrase("oclock", end) else certainty
        end = hours[1]
        minute = sentence.word(end)
        if minute.isdecimal() and len(minute) == 2 and minute < "60":  # "18 Uhr 30", "18h30"
            clock, end = replace(clock, minute=int(minute)), end + 1
    if not clock.minute and (more := sentence.phrase("after_hour", end)):
        clock, end, is_clear = replace(clock, minute=int(more[0])), more[1], True
    if part := sentence.phrase("in_part", end):
        clock, end, is_clear = replace(clock, part=part[0]), part[1], True
    goes_on = not goes_no_further(sentence, end)
    if not sentence.is_end(end) or (sentence.is_glued(end) and sentence.word(end) in "%€$£"):
        return None
    is_hour = (preposition and clock.hour > 1) or (not goes_on and (preposition or listed))
    if in_words and not is_clear and not is_hour:
        return None
    return replace(clock, certainty=certainty, bare=not is_clear), end
