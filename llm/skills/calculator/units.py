"""Units of measure by their usual names, with exact factors, and questions about conversion."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from llm.reading.numbers import numbers_in_digits
from llm.skills.calculator.words import ASKING, number_in

# By quantity: for each unit its factor to the base unit and its names, the first for display.
_TABLES: Mapping[str, str] = {
    "length": """
        1e-9 nm nanometer nanometre|1e-6 µm um micrometer micron|0.001 mm millimeter millimetre
        0.01 cm centimeter centimetre|0.1 dm decimeter decimetre|1 m meter metre
        1000 km kilometer kilometre klick|0.0254 inches inch in "|0.3048 feet foot ft '
        0.9144 yards yard yd|1609.344 miles mile mi meile meilen
        1852 nautical_miles nautical_mile nmi
        1.8288 fathoms fathom|201.168 furlongs furlong|149597870700 au astronomical_unit
        9460730472580800 light_years light_year lightyear ly lichtjahr""",
    "mass": """
        1e-9 µg ug microgram|1e-6 mg milligram|0.001 g gram gramm gramme
        1 kg kilogram kilo kilogramm
        1000 tonnes tonne t metric_ton ton tons|0.028349523125 ounces ounce oz
        0.45359237 pounds pound lb lbs
        6.35029318 stone st|907.18474 short_tons short_ton us_ton|1016.0469088 long_tons long_ton
        0.0002 carat ct|0.00006479891 grains grain""",
    "volume": """
        0.001 ml milliliter millilitre|0.01 cl centiliter centilitre|0.1 dl deciliter decilitre
        1 l liter litre|1000 m³ m3 cubic_meter cubic_metre|0.001 cm³ cm3 cc cubic_centimeter
        28.316846592 cubic_feet cubic_foot cu_ft ft3|0.016387064 cubic_inches cubic_inch in3
        0.2365882365 US_cups us_cup cup|0.473176473 US_pints us_pint pint pt
        0.946352946 US_quarts us_quart quart qt|3.785411784 US_gallons us_gallon gallon gal
        4.54609 imperial_gallons imperial_gallon uk_gallon
        0.56826125 imperial_pints imperial_pint uk_pint
        0.0295735295625 US_fluid_ounces us_fluid_ounce fluid_ounce fl_oz floz
        0.01478676478125 tablespoons tablespoon tbsp|0.00492892159375 teaspoons teaspoon tsp
        158.987294928 barrels barrel bbl""",
    "area": """
        0.0001 cm² cm2 sq_cm square_centimeter square_centimetre
        1 m² m2 sqm sq_m square_meter square_metre
        1000000 km² km2 sq_km square_kilometer square_kilometre|10000 hectares hectare ha hektar
        0.00064516 in² in2 sq_in square_inch|0.09290304 ft² ft2 sqft sq_ft square_feet square_foot
        0.83612736 yd² yd2 sq_yd square_yard|4046.8564224 acres acre
        2589988.110336 mi² mi2 sq_mi square_mile""",
    "data": """
        0.125 bits bit|125 kbit kilobit kbits Kb|125000 Mbit mbit megabit mbits Mb
        125000000 Gbit gbit gigabit gbits Gb|1 bytes byte b|1e3 kB kb kilobyte|1e6 MB mb megabyte
        1e9 GB gb gigabyte gig|1e12 TB tb terabyte|1e15 PB pb petabyte|1024 KiB kib kibibyte
        1048576 MiB mib mebibyte|1073741824 GiB gib gibibyte|1099511627776 TiB tib tebibyte
        1125899906842624 PiB pib pebibyte""",
    "time": """
        1e-9 ns nanosecond|1e-6 µs us microsecond|0.001 ms millisecond
        1 seconds second s sec sekunde sekunden|60 minutes minute min minuten
        3600 hours hour h hr stunde stunden|86400 days day d tag tage tagen
        604800 weeks week wk woche wochen|1209600 fortnights fortnight
        31536000 years year yr jahr jahre jahren|315360000 decades decade
        3153600000 centuries century""",
    "speed": """
        1 m/s mps meters_per_second metres_per_second meter_per_second
        1/3.6 km/h kmh kph kilometers_per_hour kilometres_per_hour kilometer_per_hour
        0.44704 mph mi/h miles_per_hour mile_per_hour|1852/3600 knots knot kt kn
        0.3048 ft/s fps feet_per_second""",
    "energy": """
        1 J j joule|1000 kJ kj kilojoule|1e6 MJ megajoule|4.184 cal calorie
        4184 kcal kilocalorie|3600 Wh wh watt_hour|3600000 kWh kwh kilowatt_hour
        1055.05585262 BTU btu|1.602176634e-19 eV ev electronvolt""",
    "power": """
        1 W w watt|1000 kW kw kilowatt|1e6 MW megawatt|745.69987158227022 hp horsepower
        735.49875 PS ps""",
    "pressure": """
        1 Pa pa pascal|100 hPa hpa|1000 kPa kpa kilopascal|100000 bar bars|100 mbar millibar
        101325 atm atmosphere|6894.757293168361 psi|133.322387415 mmHg mmhg""",
    "angle": """
        1 degrees degree deg|1/60 arcminutes arcminute""",
    "temperature": """
        1 K kelvin|1+273.15 °C c celsius centigrade|5/9+45967/180 °F f fahrenheit""",
}


class UnitError(ValueError):
    """A unit is unknown, or the conversion impossible."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: the quantity it measures, its factor to the base unit, its display name, that of one,
    and where a scale of temperature has its zero, in the base unit."""

    measures: str
    factor: Fraction
    shown: str
    singular: str
    zero: Fraction


def _read_tables() -> Iterator[tuple[str, Unit]]:
    for measures, table in _TABLES.items():
        for line in table.replace("\n", "|").split("|"):
            if not line.strip():
                continue
            size, *names = (word.replace("_", " ") for word in line.split())
            factor, _, zero = size.partition("+")
            above, _, below = factor.partition("/")
            singular = names[1].replace("us ", "US ") if names[0].endswith("s") else names[0]
            unit = Unit(
                measures,
                Fraction(above) / Fraction(below or 1),
                names[0],
                singular,
                Fraction(zero or 0),
            )
            for name in names:
                yield name, unit
                yield name.lower(), unit


_UNITS = dict(_read_tables())


def unit_of(name: str) -> Unit | None:
    """Return the unit with a name in any usual spelling, None if it is unknown."""
    name = name.rstrip(".")
    plain = name.lower().replace("metric tonnes", "metric ton").replace("sq. ", "sq ")
    degrees = plain.removeprefix("°").strip()
    for word in ("degrees ", "degree ", "deg ", "grad "):
        degrees = degrees.removeprefix(word).removeprefix("°")
    unit = _UNITS.get(degrees)
    if unit and unit.measures == "temperature":
        return unit
    spellings = (name, plain, plain.removesuffix("s"), plain.removesuffix("es"))
    return next((_UNITS[each] for each in spellings if each in _UNITS), None)


def convert(value: Fraction, unit: Unit, to: Unit) -> Fraction:
    """Convert a value from one unit to another. Raises UnitError."""
    if unit.measures != to.measures:
        raise UnitError(f"{unit.shown} cannot be converted to {to.shown}")
    base = value * unit.factor + unit.zero
    if unit.measures == "temperature" and base < 0:
        raise UnitError("nothing is colder than 0 K")
    return (base - to.zero) / to.factor


def convert_named(value: float, unit: str, to: str) -> Fraction:
    """Convert a value between units given by name. Raises UnitError."""
    one, other = unit_of(unit), unit_of(to)
    if one is None or other is None or not math.isfinite(value):
        raise UnitError(f"{unit} cannot be converted to {to}")
    return convert(Fraction(str(value)), one, other)


def _format(number: Fraction) -> str:
    """Return a number exactly if ten significant digits suffice, else rounded to six."""
    exact = f"{float(number):.10g}"
    return exact if "e" not in exact and Fraction(exact) == number else f"{float(number):.6g}"


def _sentence(value: Fraction, unit: Unit, to: Unit) -> str | None:
    """Return a conversion as people write it: "1 mile = 5280 feet"; None if there is none."""
    try:
        result = convert(value, unit, to)
    except UnitError:
        return None
    leap = ""
    if "years" in (unit.shown, to.shown):
        leap = " (366 in a leap year)" if to.shown == "days" and value == 1 else " (of 365 days)"
    one, other = (
        f"{_format(number)} {each.singular if number == 1 else each.shown}"
        for number, each in ((value, unit), (result, to))
    )
    return f"{one} {'=' if Fraction(_format(result)) == result else '≈'} {other}{leap}"


_WANTED = frozenset(("many", "much", "far", "long", "tall", "viele", "viel", "wieviel", "wieviele"))
_MAX_OTHERS = 2  # more words that a question may have which is surely a calculation
_BETWEEN = re.compile(r"(?<=\d)(?=[a-zµ°])", re.IGNORECASE)  # "10km"
_MIXED = re.compile(r"\b(\d{1,6}|an?)( [a-z]+)? and (?:an? |1 )?(half|quarter)\b|\bhalf an?\b")
_FEET = re.compile(
    r"(\d{1,2}) ?(?:'|ft|foot|feet) ?(\d{1,2}) ?(?:\"|''|inches|inch|in)?(?= (?:in|to|into|as) )"
)


def conversion_in(asked: str, *, is_sure: bool = False) -> str | None:
    """Return the answer to a question that only asks to convert a measure, None for any other one.

    `asked` is without courtesies, in its original case, which distinguishes Mb from MB. With
    `is_sure` the question asks for a calculation, and so may have a few words more.
    """
    feet = _FEET.search(asked)
    if feet and int(feet[2]) < 12:
        inches = f"{int(feet[1]) * 12 + int(feet[2])} inches"
        said = conversion_in(asked.replace(feet[0], inches, 1), is_sure=is_sure)
        return said and said.replace(inches, f"{feet[1]} ft {feet[2]} in", 1)
    words = _BETWEEN.sub(" ", _MIXED.sub(_decimal, numbers_in_digits(asked))).split()
    found = _measures([word.strip(",;:?!") or word for word in words], is_sure)
    if len(found) != 2:
        return None
    (first, unit), (second, other) = found
    if first is not None:
        return _sentence(first, unit, other) if second is None else None
    asks = is_sure or _WANTED & {word.lower() for word in words}
    return _sentence(second or Fraction(1), other, unit) if asks else None


def _measures(words: Sequence[str], is_sure: bool) -> list[tuple[Fraction | None, Unit]]:
    """Return the units in the words of a question, each with the number before it; none if the
    words have another meaning."""
    found: list[tuple[Fraction | None, Unit]] = []
    number: Fraction | None = None
    at, others, is_linked = 0, 0, True
    while at < len(words):
        word = words[at].lower()
        phrases = [" ".join(words[at : at + length]) for length in (3, 2, 1)]
        unit = next(((phrase, unit) for phrase in phrases if (unit := unit_of(phrase))), None)
        is_inch = number is not None or (found and at == len(words) - 1)
        if unit and (word not in ASKING or is_inch or unit[0] != words[at]):
            if not is_linked or (found and found[0][1] == unit[1]):
                return []
            found.append((number, unit[1]))
            number, is_linked = None, False
            at += unit[0].count(" ")
        elif number is None and word in ASKING:
            is_linked = True
        elif number in (None, 1) and (read := 1 if word in ("a", "an") else number_in(word)):
            number = Fraction(read)
        elif number is None and is_sure and others < _MAX_OTHERS:
            others += 1
        else:
            return []
        at += 1
    return found if number is None else []


def _decimal(match: re.Match[str]) -> str:
    """Return "3 and a half", "an hour and a half" or "half an" with a decimal."""
    if not match[3]:
        return "0.5"
    whole = Fraction(int(match[1])) if match[1].isdecimal() else Fraction(1)
    return f"{float(whole) + (0.5 if match[3] == 'half' else 0.25):g}{match[2] or ''}"
