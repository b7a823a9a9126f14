"""Units of measure by their usual names, with exact factors, and questions about conversion."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from llm.skills.calculator.words import number_in

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
        0.125 bits bit|125 kbit kilobit kbits|125000 Mbit mbit megabit mbits
        125000000 Gbit gbit gigabit gbits|1 bytes byte b|1e3 kB kb kilobyte|1e6 MB mb megabyte
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
}
_TEMPERATURES = {
    "c": "°C",
    "celsius": "°C",
    "centigrade": "°C",
    "f": "°F",
    "fahrenheit": "°F",
    "k": "K",
    "kelvin": "K",
}
_ZERO = {"°C": Fraction("273.15"), "°F": Fraction("459.67") * 5 / 9, "K": Fraction(0)}
_DEGREE = {"°C": Fraction(1), "°F": Fraction(5, 9), "K": Fraction(1)}


class UnitError(ValueError):
    """A unit is unknown, or the conversion impossible."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: the quantity it measures, its factor to the base unit, and its display name."""

    measures: str
    factor: Fraction
    shown: str


def unit_of(name: str) -> Unit | None:
    """Return the unit with a name in any usual spelling, None if it is unknown."""
    name = " ".join(name.split()).rstrip(".")
    degrees = name.lower().removeprefix("°").strip()
    for word in ("degrees ", "degree ", "deg ", "grad "):
        degrees = degrees.removeprefix(word)
    if symbol := _TEMPERATURES.get(degrees.removeprefix("°")):
        return Unit("temperature", _DEGREE[symbol], symbol)
    plain = name.lower().replace("metric tonnes", "metric ton").replace("sq. ", "sq ")
    for spelling in (name, plain, plain.removesuffix("s"), plain.removesuffix("es")):
        if unit := _UNITS.get(spelling):
            return unit
    return None


def convert(value: Fraction, unit: Unit, to: Unit) -> Fraction:
    """Convert a value from one unit to another. Raises UnitError."""
    if unit.measures != to.measures:
        raise UnitError(f"{unit.shown} cannot be converted to {to.shown}")
    if unit.measures == "temperature":
        kelvin = value * unit.factor + _ZERO[unit.shown]
        if kelvin < 0:
            raise UnitError("nothing is colder than 0 K")
        return (kelvin - _ZERO[to.shown]) / to.factor
    return value * unit.factor / to.factor


def convert_named(value: float, unit: str, to: str) -> Fraction:
    """Convert a value between units given by name. Raises UnitError."""
    one, other = unit_of(unit), unit_of(to)
    if one is None or other is None or not math.isfinite(value):
        raise UnitError(f"{unit} cannot be converted to {to}")
    return convert(Fraction(str(value)), one, other)


def measure(number: Fraction, unit: Unit) -> str:
    """Return a number with its unit as people write it: "1 mile", "5280 feet", "20 °C"."""
    shown = unit.shown if number != 1 else _SINGULAR.get(unit.shown, unit.shown)
    return f"{format_rounded(number)} {shown}"


def format_rounded(number: Fraction) -> str:
    """Return a number exactly if ten significant digits suffice, else rounded to six."""
    exact = f"{float(number):.10g}"
    return exact if "e" not in exact and Fraction(exact) == number else f"{float(number):.6g}"


def is_exact(number: Fraction) -> bool:
    """Return whether `format_rounded` shows a number exactly."""
    return Fraction(format_rounded(number)) == number


def _units(tables: Mapping[str, str]) -> tuple[dict[str, Unit], dict[str, str]]:
    found: dict[str, Unit] = {}
    singular: dict[str, str] = {}
    for measures, table in tables.items():
        for line in table.replace("\n", "|").split("|"):
            words = line.split()
            if words:
                names = [word.replace("_", " ") for word in words[1:]]
                unit = Unit(measures, _factor(words[0]), names[0])
                found |= dict.fromkeys(_spellings(names), unit)
                if len(names) > 1 and names[0].endswith("s"):
                    singular[names[0]] = names[1].replace("us ", "US ")
    return found, singular


def _factor(text: str) -> Fraction:
    above, _, below = text.partition("/")
    return Fraction(above) / Fraction(below or 1)


def _spellings(names: Sequence[str]) -> list[str]:
    return [spelling for name in names for spelling in (name, name.lower())]


_UNITS, _SINGULAR = _units(_TABLES)


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
    """Return the answer to a question that only asks to convert a measure, None for any other one.

    `asked` is in lower case, without courtesies; `written` has the original case, which
    distinguishes Mb from MB.
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
    """Return the conversions that a longer question asks for. Durations are left out, as "2 hours
    in ..." is rarely a conversion."""
    found = []
    for match in _WITHIN.finditer(asked):
        value, unit, to = number_in(match["value"]), unit_of(match["unit"]), unit_of(match["to"])
        if value is not None and unit and to and unit != to and unit.measures != "time":
            said = _sentence(value, unit, to)
            found += [said] if said else []
    return found


def _decimal(match: re.Match[str]) -> str:
    """Return a mixed number, as in "3 and a half" or "an hour and a half", as a decimal."""
    whole = number_in(match["whole"]) or Fraction(0)
    value = whole + (Fraction(1, 2) if match["part"] == "half" else Fraction(1, 4))
    return f"{float(value):g}{match['unit'] or ''}"


def _unit(name: str, written: str, which: int = 0) -> Unit | None:
    """Return the unit of a lower-case name. Its spelling at occurrence `which` in the question
    (0 first, -1 last) tells bits from bytes."""
    spelled = re.findall(rf"(?<![a-z]){re.escape(name)}(?![a-z])", written, re.IGNORECASE)
    if spelled and spelled[which] in ("Kb", "Mb", "Gb"):
        return unit_of(f"{spelled[which][0].lower()}bit")
    return unit_of(name)


def _sentence(value: Fraction, unit: Unit, to: Unit) -> str | None:
    try:
        result = convert(value, unit, to)
    except UnitError:
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
