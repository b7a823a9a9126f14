"""Numbers in digits and words."""

from __future__ import annotations

from fractions import Fraction

import pytest

from llm.reading.numbers import count_at, numbers_in_digits
from llm.reading.vocabulary import Sentence


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2.5", Fraction(5, 2)),
        ("1,5", Fraction(3, 2)),
        ("twenty-one", 21),
        ("two hundred and five", 205),
        ("a hundred", 100),
        ("three million two hundred thousand and seven", 3_200_007),
        ("half a", Fraction(1, 2)),
        ("einundzwanzig", 21),
        ("fünfunddreißig", 35),
        ("quatre-vingt-dix", 90),
        ("treinta y cinco", 35),
        ("quarantacinque", 45),
        ("dwadzieścia pięć", 25),
        ("one two three", None),
        ("twenty - one", None),
        ("9" * 400, None),
        ("frog", None),
        ("", None),
    ],
)
def test_a_number_is_read_as_a_whole(text: str, number: Fraction | int | None) -> None:
    sentence = Sentence(text)
    found = count_at(sentence, 0)
    assert (found[0] if found and found[1] == len(sentence) else None) == number


def test_words_become_digits_and_all_else_stays() -> None:
    said = "how much is twenty-three plus five hundred and two? 1.5 million / three, 3,4 and half a"
    assert numbers_in_digits(said) == "how much is 23 plus 502? 1500000 / 3, 3,4 and half a"
