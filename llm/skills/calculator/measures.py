"""Questions about units of measure: "how many feet in a mile", "100 f in c"."""

from __future__ import annotations

import re
from fractions import Fraction

from llm.skills.calculator.units import NoUnit, Unit, convert, is_exact, measure, unit_of
from llm.skills.calculator.words import number_in

_NUMBER = (
    r"-?\d[\d,]*(?:\.\d+)?(?: (?:hundred|thousand|million|billion))?|-?\.\d+|half an?|an?"
    r"|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty"
    r"|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|[ -])+"
)
_UNIT = r"[a-zµ°\"'][a-z°²³/0-9.]*(?: [a-z°][a-z²³0-9]*){0,2}?"
_MEASURE = rf"(?P<value>{_NUMBER}) ?(?P<unit>{_UNIT})"
_ASKING = (
    r"(?:(?:what|how (?:much|many|far|long|tall|high|heavy|big|hot|cold|warm|fast|large)|was"
    r"|wie ?viel)"
    r"(?:'s| is| are| does| do| ist| sind)? )?(?:convert |change |turn |rechne |umgerechnet )?"
)
_MIXED = re.compile(
    r"\b(?P<whole>\d{1,6}|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
    r"(?P<unit> [a-z]+)? and (?:a |one )?(?P<part>half|quarter)\b"
)
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"{_ASKING}{_MEASURE} (?:converted )?(?:in|to|into|as|equals|=|expressed in) "
        rf"(?:how many |\? ?)?(?P<to>{_UNIT})",
        rf"how (?:many|much) (?P<to>{_UNIT}) (?:(?:is|are|makes?|equals?) )?(?:there |contained )?"
        rf"(?:in|make|per|to|is|are|equals?) (?:up )?{_MEASURE}",
        rf"how (?:many|much) (?P<to>{_UNIT}) (?:does|do) {_MEASURE} (?:have|contain|equal|make)",
        rf"how (?:many|much) (?P<to>{_UNIT}) (?:in|per) (?P<unit>{_UNIT})",
        rf"wie ?viele? (?P<to>{_UNIT}) (?:sind|hat|ist|haben) {_MEASURE}",
    )
)
_FEET = re.compile(
    rf"{_ASKING}(?P<feet>\d{{1,2}}) ?(?:'|ft|foot|feet) ?(?P<inches>\d{{1,2}})"
    rf" ?(?:\"|''|in|inch|inches)? (?:in|to|into|as) (?P<to>{_UNIT})"
)
_WITHIN = re.compile(
    r"(?<![\w.,/-])(?P<value>-?\d[\d,]{0,12}(?:\.\d{1,9})?) ?(?P<unit>°?[a-z]{2,12})"
    r" (?:in|to|into) (?P<to>°?[a-z]{2,12})\b"
)


def measure_in(asked: str, written: str) -> str | None:
    """Return the answer to a question that asks to convert a measure, and for nothing else.

    `asked` is in lower case without courtesies; in `written`, capitals tell Mb from MB.
    """
    if match := _FEET.fullmatch(asked):
        return _in_feet(match)
    asked = _MIXED.sub(_decimal, asked)
    for form in _FORMS:
        if match := form.fullmatch(asked):
            found = match.groupdict()
            value = number_in(found.get("value") or "a")
            unit, to = _unit(found["unit"], written), _unit(found["to"], written, -1)
            if value is not None and unit and to and unit != to:
                return _sentence(value, unit, to)
    return None


def measures_within(asked: str) -> list[str]:
    """Return the measures of a longer question, converted; spans of time are rarely meant so."""
    found = []
    for match in _WITHIN.finditer(asked):
        value, unit, to = number_in(match["value"]), unit_of(match["unit"]), unit_of(match["to"])
        if value is not None and unit and to and unit != to and unit.measures != "time":
            said = _sentence(value, unit, to)
            found += [said] if said else []
    return found


def _decimal(match: re.Match[str]) -> str:
    """A number such as "3 and a half", or "an hour and a half", as a decimal."""
    whole = number_in(match["whole"]) or Fraction(0)
    value = whole + (Fraction(1, 2) if match["part"] == "half" else Fraction(1, 4))
    return f"{float(value):g}{match['unit'] or ''}"


def _unit(name: str, written: str, which: int = 0) -> Unit | None:
    """The unit of a name, as it is spelled where the question has it first (or last)."""
    spelled = re.findall(rf"(?<![a-z]){re.escape(name)}(?![a-z])", written, re.IGNORECASE)
    if spelled and spelled[which] in ("Kb", "Mb", "Gb"):
        return unit_of(f"{spelled[which][0].lower()}bit")
    return unit_of(name)


def _sentence(value: Fraction, unit: Unit, to: Unit) -> str | None:
    try:
        result = convert(value, unit, to)
    except NoUnit:
        return None
    sign = "=" if is_exact(result) else "≈"
    leap = ""
    if "years" in (unit.shown, to.shown):
        leap = " (366 in a leap year)" if to.shown == "days" and value == 1 else " (of 365 days)"
    return f"{measure(value, unit)} {sign} {measure(result, to)}{leap}"


def _in_feet(match: re.Match[str]) -> str | None:
    to, feet, inches = unit_of(match["to"]), int(match["feet"]), int(match["inches"])
    if not to or to.measures != "length" or inches > 11:
        return None
    foot = unit_of("ft")
    assert foot
    result = convert(feet + Fraction(inches, 12), foot, to)
    return f"{feet} ft {inches} in {'=' if is_exact(result) else '≈'} {measure(result, to)}"
