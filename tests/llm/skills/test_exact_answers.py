"""Questions that skills settle without a model, word by word, and talk that they leave alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.client.profile import CAPABLE, TINY
from llm.reading.days import easter
from llm.reading.reading import Reading
from llm.skills.calculator.sums import ExpressionError, evaluate
from llm.skills.hint import HintContext
from llm.skills.registry import SkillRegistry
from llm.skills.world_clock.places import zone_name
from tests.kit.skills import whole_hint
from tests.kit.tables import rows

NOW = datetime(2026, 11, 22, 5, 5, tzinfo=UTC)  # a Sunday
VIENNA = ZoneInfo("Europe/Vienna")


@cache
def shelf() -> SkillRegistry:
    """Our own skills."""
    return SkillRegistry.read(Path("nowhere"), SkillRegistry({}, {}))


async def said(question: str) -> str | None:
    return await whole_hint(shelf(), question, HintContext(NOW, VIENNA))


SUMS = {
    "how much is (3 + 4) * 2 ^ 3 please": "(3 + 4) × 2^3 = 56",
    "what is 17/0?": "Division by zero has no result.",
    "10 divided by zero": "Division by zero has no result.",
    "what's 5 mod 0": "Division by zero has no result.",
    "0.7^996": "0.7^996 ≈ 5.21972777995e-155",
    "what is (1/3)^600?": "(1 ÷ 3)^600 ≈ 5.33638516538e-287",
    "1^5000": "1^5000 = 1",
    "0^0.3": "0^0.3 ≈ 0",
    "sin(0)^2 + cos(0)^2": "sin(0)^2 + cos(0)^2 ≈ 1",
    "what is 17 times 23?": "17 × 23 = 391",
    "What's 17 multiplied by 23": "17 × 23 = 391",
    "hey, can you tell me what 6 * 7 is?": "6 × 7 = 42",
    "could you please calculate 100 minus 42": "100 - 42 = 58",
    "how much is twenty-three plus five hundred and two?": "23 + 502 = 525",
    "seven times eight": "7 × 8 = 56",
    "144 divided by 12": "144 ÷ 12 = 12",
    "what is 10 over 4?": "10 ÷ 4 = 2.5",
    "what is 10 divided by 3?": "10 ÷ 3 ≈ 3.33333333333",
    "15% of 80": "15% of 80 = 12",
    "what is 15 percent of 80?": "15% of 80 = 12",
    "80 + 15%": "80 + 15% = 92",
    "20% off 50": "50 - 20% = 40",
    "what percent of 80 is 20?": "20 is 25% of 80.",
    "12 squared": "12² = 144",
    "3 cubed plus 1": "3³ + 1 = 28",
    "square root of 144": "√144 = 12",
    "what is the square root of 2?": "√2 ≈ 1.41421356237",
    "2 to the power of 10": "2^10 = 1024",
    "2 to the 10th power": "2^10 = 1024",
    "half of 90": "½ of 90 = 45",
    "a quarter of 100": "¼ of 100 = 25",
    "double 7": "2 × 7 = 14",
    "the sum of 3, 4 and 5": "The sum of 3, 4 and 5 is 12.",
    "the product of 6 and 7": "The product of 6 and 7 is 42.",
    "difference between 37 and 100": "The difference of 37 and 100 is 63.",
    "average of 10, 20 and 60": "The average of 10, 20 and 60 is 30.",
    "5!": "5! = 120",
    "5 factorial": "5! = 120",
    "17 mod 5": "17 mod 5 = 2",
    "what is the remainder when 17 is divided by 5": "17 mod 5 = 2",
    "1,000,000 / 4": "1,000,000 ÷ 4 = 250000",
    "1.5 million divided by 3": "1500000 ÷ 3 = 500000",
    "-3 + 5.5": "-3 + 5.5 = 2.5",
    "(3 + 4) * 2 = ?": "(3 + 4) × 2 = 14",
    "(3 plus 4) times 5": "(3 + 4) × 5 = 35",
    "0.1 + 0.2": "0.1 + 0.2 = 0.3",
    "subtract 3 from 10": "10 - 3 = 7",
    "was ist 7 mal 8?": "7 × 8 = 56",
    "was sind 19% von 340": "19% of 340 = 64.6",
    "3²! + 1": "3²! + 1 = 362881",
    "-2²": "-2² = -4",
    "sqrt(2)^2": "√2^2 ≈ 2",
    "wie viel ist 10 geteilt durch 4": "10 ÷ 4 = 2.5",
}
UNITS = {
    "how many feet in a mile": "1 mile = 5280 feet",
    "how many ounces are there in a pound?": "1 pound = 16 ounces",
    "convert 10 km to miles": "10 km ≈ 6.21371 miles",
    "how many km is 26.2 miles?": "26.2 miles = 42.1648128 km",
    "100 f in c": "100 °F ≈ 37.7778 °C",
    "20 degrees celsius in fahrenheit": "20 °C = 68 °F",
    "what is 5 stone in kg": "5 stone = 31.7514659 kg",
    "5'11\" in cm": "5 ft 11 in = 180.34 cm",
    "how many seconds are in a day": "1 day = 86400 seconds",
    "100 Mb in MB": "100 Mbit = 12.5 MB",
    "16 GiB in MiB": "16 GiB = 16384 MiB",
    "60 mph in km/h": "60 mph = 96.56064 km/h",
    "how many litres are in a gallon?": "1 US gallon = 3.785411784 l",
    "2 hectares in m2": "2 hectares = 20000 m²",
    "1 kwh in kj": "1 kWh = 3600 kJ",
    "5 GiB to MB": "5 GiB = 5368.70912 MB",
}


@pytest.mark.parametrize("question", [*SUMS, *UNITS])
async def test_a_question_that_has_one_exact_answer_gets_it(question: str) -> None:
    assert await said(question) == (SUMS | UNITS)[question]


def of_time(question: str) -> HintContext:
    return HintContext(NOW, VIENNA, Reading(question, {"time": 1.0}))


@pytest.mark.parametrize("row", rows("llm/skills/times.txt"), ids=" | ".join)
async def test_a_question_about_times_and_dates_is_told_the_facts(row: Sequence[str]) -> None:
    question, *facts = row
    answer = await whole_hint(shelf(), question, of_time(question)) or ""
    assert [fact for fact in facts if fact not in answer] == [], answer
    reading = Reading(question, {"general": 1.0})
    assert await whole_hint(shelf(), question, HintContext(NOW, VIENNA, reading)) is None


@pytest.mark.parametrize("row", rows("llm/skills/no_times.txt"), ids=" | ".join)
async def test_what_asks_for_more_than_the_clock_knows_is_left_alone(row: Sequence[str]) -> None:
    assert await whole_hint(shelf(), row[0], of_time(row[0])) is None


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("roll 2d6+1", r"Rolled 2d6\+1: [1-6] \+ [1-6] \+ 1 = \d+\."),
        ("please roll a die", r"Rolled 1d6: [1-6]\."),
        ("roll a 20-sided die", r"Rolled 1d20: \d+\."),
        ("Flip a coin!", r"The coin shows (heads|tails)\."),
        ("heads or tails?", r"The coin shows (heads|tails)\."),
        ("pick one of: Ada, Bob, c", r"Picked at random: (Ada|Bob|c)\."),
        ("choose between tea and coffee", r"Picked at random: (tea|coffee)\."),
        ("random number between 1 and 10", r"Picked at random from 1 to 10: ([1-9]|10)\."),
        ("a random number from -3 to 3", r"Picked at random from -3 to 3: (-?[0-3])\."),
        ("flip 2 coins", r"The coins show (heads|tails), (heads|tails): heads [0-2] times\."),
        ("roll 3 12-sided dice", r"Rolled 3d12: \d+ \+ \d+ \+ \d+ = \d+\."),
        ("roll d%", r"Rolled 1d100: \d+\."),
        ("wirf eine Münze", r"The coin shows (heads|tails)\."),
        ("lance deux dés", r"Rolled 2d6: [1-6] \+ [1-6] = \d+\."),
        ("tira una moneda", r"The coin shows (heads|tails)\."),
        ("un numero a caso tra 5 e 6", r"Picked at random from 5 to 6: [56]\."),
        ("rzuć kostką", r"Rolled 1d6: [1-6]\."),
    ],
)
async def test_what_is_left_to_chance_is_left_to_no_model(question: str, answer: str) -> None:
    assert re.fullmatch(answer, await said(question) or "")


# By kind: what a question surely of it asks for, whatever else it says.
SURELY = {
    "calculation": {
        "quick maths: 99 x 99": "99 × 99 = 9801",
        "17 + 4 + 238 thx im lazy": "17 + 4 + 238 = 259",
        "what do i get if i add 19% to 1200": "1200 + 19% = 1428",
        "a third of 4.5 is what": "⅓ of 4.5 = 1.5",
        "what do 12 singers times 8.50 come to?": "12 × 8.50 = 102",
        "14 planks each 2.4 metres long, how much is that?": "14 × 2.4 = 33.6",
        "three pizzas at £11.50 each": "3 × 11.50 = 34.5",
        "if 120 apples are divided by 6 kids": "120 ÷ 6 = 20",
        "500 out of 750 as a percentage": "500 is about 66.6666666667% of 750.",
        "20 feet times 3 metres": None,
        "9 at 5 plus 3": None,
        "cups in a litre?": "1 l ≈ 4.22675 US cups",
        "how many minutes are an hour and a half": "1.5 hours = 90 minutes",
        "half a mile in km": "0.5 miles = 0.804672 km",
        "1,000 m in km": "1000 m = 1 km",
        "whats 1/8 inch in mm": "0.125 inches = 3.175 mm",
        "-40 f in c": "-40 °F = -40 °C",
        "12 zoll in cm": "12 inches = 30.48 cm",
        "combien font 12 fois 7": "12 × 7 = 84",
        "cuánto es 15% de 80": "15% of 80 = 12",
        "quanti km sono 26 miglia": "26 miles = 41.842944 km",
        "pierwiastek z 144": "√144 = 12",
        "how many minutes in a leap year": None,
        "1,8 m en pieds et pouces": None,
        "how much is 3 times 20 minus taxes": None,
        "i've got 250 g of flour and need 3/4 of it, how much is that": None,
    },
    "dice": {
        "coin toss, loser does the dishes": r"The coin shows (heads|tails)\.",
        "could you throw two dice for monopoly": r"Rolled 2d6: [1-6] \+ [1-6] = \d+\.",
        "any number between ten and twenty, random": r"Picked at random from 10 to 20: \d\d\.",
        "draw straws between me, olm and pepita": None,
        "draw me a lottery number, 6 out of 49": None,
        "gimme a random number below 50": None,
        "2d20, keep the higher 1": None,
    },
    # Plainly a sum, whatever the classifier says.
    "small_talk": {"17*3?": "17 × 3 = 51", "(2+3)^2": "(2 + 3)^2 = 25", "what is 17*3?": None},
}


@pytest.mark.parametrize(
    ("kind", "question"), [(kind, question) for kind in SURELY for question in SURELY[kind]]
)
async def test_what_a_question_is_read_as_decides_how_it_is_taken(kind: str, question: str) -> None:
    reading = Reading(question, {kind: 1.0})
    answer = await whole_hint(shelf(), question, HintContext(NOW, VIENNA, reading))
    expected = SURELY[kind][question]
    assert answer == expected or re.fullmatch(expected or "", answer or "")


TALK = """
what is the best time to plant tomatoes
what is 42?
who won the 2-1 match
python 3.11 vs 3.12
is 24/7 support available
what is 24/7?
what is 9/11?
my ip is 192.168.1.1
what is 192.168.1.1
what is 127.0.0.1/8
2024-01-01
what happened on 2026-11-21?
1984 by Orwell
ubuntu 24.04 or 22.04?
is 10-12 the right range?
call 555-1234
what is 555-1234
what is 1914-1918
what is 1920x1080
what is a 2x4
9**9**9**9
1/0
5 apples to oranges
what's 100 usd in eur
what is the meaning of life
what is pi
what is e
what is over 9000
what is half life
what is the sum of all fears
what is the square root of all evil
what is average
what does plus mean
who is number one
one two three
is it time for tea?
time flies
what time does the match start
what is the time complexity of quicksort
what time is it in Mordor
what is the date of the battle of hastings
when is the next release
when is lunch
how many days until the release
what day is best for shopping
how long is the nile
how far is the moon
what is may
what's march madness
what is friday night lights
in 3 weeks
what is today's weather
how old is the universe
how many feet does a spider have
how many cups of coffee do you drink
how many people live in a mile radius
what is a stone
how hot is the sun
is 5 stone a lot
rock and roll
do you like rock and roll?
roll back the deployment
how do I install ngircd
how do I choose between tea and coffee
should I flip a coin or not
pick up the phone
pick one of them
choose wisely
binary trading
what is deadbeef
what is 5 in a row
a random thought
C++ or C--
1-800-273-8255
rc-1.2.3-4
v2.0.1 + patches
https://example.org/2024/01/02
#42
+1
15%
it is 1024*768 right now
10:36 AM in France, it's so long
is there a way to make my console not all in CAPS??
select twinview and resolution
pick up milk and bread
level 3/5 complete
50/50
10:30
""".strip().split("\n")


@pytest.mark.parametrize("question", TALK)
async def test_ordinary_talk_is_left_alone(question: str) -> None:
    matches = await shelf().matching(question, None)
    assert [match.hint for match in matches if match.hint] == []


@pytest.mark.parametrize(
    ("question", "hint"),
    [("what is 12 * 4 and who was Einstein?", "12 × 4 = 48"), ("is 99 x 3 a lot?", "99 × 3 = 297")],
)
async def test_a_sum_in_a_longer_question_helps_and_does_not_settle_it(
    question: str, hint: str
) -> None:
    [match] = await shelf().matching(question, None)
    assert (match.hint, match.is_whole) == (hint, False)


@pytest.mark.parametrize(
    ("kind", "question", "is_asked"),
    [
        ("dice", "choose between tea and coffee", False),
        ("dice", "choose between tea and coffee, given what ada said", True),
        ("dice", "coin toss, loser does the dishes", True),
        ("dice", "flip a coin, then say what bob said about the pump", True),
        ("calculation", "quick maths: 99 x 99", False),
        ("calculation", "99 x 99 because bob cannot", True),
        ("dice", "choose between this and that", True),
        ("dice", "flip a coin", False),
        ("dice", "flip a coin and tell me why", True),
    ],
)
async def test_a_capable_model_is_asked_what_an_unquoted_text_may_hold(
    kind: str, question: str, is_asked: bool
) -> None:
    context = HintContext(NOW, VIENNA, Reading(question, {kind: 1.0}))
    matches = await shelf().matching(question, None, context)
    (match,) = [match for match in matches if match.is_whole]
    assert TINY.may_shortcut(match.free)
    assert CAPABLE.may_shortcut(match.free) is not is_asked


@pytest.mark.parametrize(
    "question", ["(" * 290, "1+" * 140, "9" * 300, "a b " * 70, "in " * 90, "1." * 150]
)
async def test_a_strange_question_is_soon_done_with(question: str) -> None:
    assert await said(question) is None


@given(st.text(alphabet="0123456789 +-*/%^().,!x ofinkmtdays?", max_size=60))
async def test_no_question_makes_a_hint_fail(question: str) -> None:
    for skill in shelf().skills.values():
        hint = await skill.hint(question, HintContext(NOW, VIENNA)) if skill.hint else None
        assert hint is None or hint.text.strip()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9^999", "too large"),
        ("10.5^400", "too large"),
        ("0.01^-300", "too large"),
        ("0.01^300", "too close to zero"),
        ("9^-999", "too close to zero"),
        ("0.5^600 * 0.5^600", "too close to zero"),
        ("round(1, 999999999)", "too long"),
        ("-" * 150 + "1", "too many brackets"),
    ],
)
def test_a_result_beyond_all_bounds_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        evaluate(text)


def test_easter_is_when_it_was() -> None:
    known = {1818: "03-22", 1943: "04-25", 2000: "04-23", 2024: "03-31", 2038: "04-25"}
    assert {year: f"{easter(year):%m-%d}" for year in known} == known


def test_places_are_known_by_their_usual_names() -> None:
    assert zone_name("Wien") == "Europe/Vienna"
    assert zone_name("europe/vienna") == "Europe/Vienna"
    assert zone_name("UTC") == "UTC"
    assert zone_name("Atlantis") is None
