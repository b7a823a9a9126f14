"""Numbers of sums: fractions as long as there is one, within bounds, and how they are shown."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

Number = Fraction | float

_DIGITS = 300.0  # of a whole number: its length bounds how long a sum can take
_BITS = int(_DIGITS * math.log2(10))
_MOST_FACTORIAL = 150
_SHOWN_EXACTLY = 15  # digits of a decimal fraction
_SHOWN = 12  # digits of a number without end


class NoSum(ValueError):
    """The text is no sum, or one without a result; the message says why."""


def format_number(number: Number) -> str:
    """A number for people: exactly where that is short, else with twelve digits that count."""
    if isinstance(number, float):
        return f"{number:.{_SHOWN}g}"
    if number.denominator == 1:
        return str(number.numerator)
    exact = _decimal(number)
    return exact if exact is not None else f"{float(number):.{_SHOWN}g}"


def equals(number: Number) -> str:
    """Return "= 12.5" or, where not all digits are shown, "≈ 3.33333333333"."""
    exact = isinstance(number, Fraction) and (number.denominator == 1 or _decimal(number))
    return f"{'=' if exact else '≈'} {format_number(number)}"


def root(number: Number, degree: int) -> Number:
    """The square or cube root, exactly where it is a fraction. Raises NoSum."""
    if number < 0 and degree == 2:
        raise NoSum("a negative number has no real square root")
    if isinstance(number, Fraction):
        whole = [round(abs(part) ** (1 / degree)) for part in number.as_integer_ratio()]
        found = Fraction(whole[0], whole[1] or 1) * (1 if number >= 0 else -1)
        if found**degree == number:
            return found
    return math.copysign(abs(float(number)) ** (1 / degree), number)


def factorial(number: Number) -> Number:
    """n!, for whole numbers that are not too large. Raises NoSum."""
    if not isinstance(number, Fraction) or number.denominator != 1:
        raise NoSum("only a whole number has a factorial")
    if not 0 <= number <= _MOST_FACTORIAL:
        raise NoSum(f"I know the factorials of 0 to {_MOST_FACTORIAL}")
    return Fraction(math.factorial(int(number)))


def power(base: Number, exponent: Number) -> Number:
    """The power, exactly where it is a fraction. Raises NoSum."""
    size = abs(float(base))
    if base and size < 0.5:
        size = 1 / size
    if abs(float(exponent)) * math.log10(max(size, 2)) > _DIGITS:
        raise NoSum("the result is too large")
    if isinstance(base, Fraction) and exponent == Fraction(1, 2):
        return root(base, 2)
    result = base**exponent
    if isinstance(result, complex):
        raise NoSum("it has no real result")
    return check_bounds(result)


def check_bounds(value: Number | int) -> Number:
    """The value, unless it is too long or not finite. Raises NoSum."""
    if isinstance(value, int):
        value = Fraction(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NoSum("it has no real result")
    elif max(value.numerator.bit_length(), value.denominator.bit_length()) > _BITS:
        raise NoSum("the result is too large")
    return value


def _decimal(number: Fraction) -> str | None:
    """The decimal fraction that a number is, None where it has no end or is long."""
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return None
    exact = Context(prec=_SHOWN_EXACTLY + 5).divide(
        Decimal(number.numerator), Decimal(number.denominator)
    )
    digits = len(exact.normalize().as_tuple().digits)
    return f"{exact.normalize():f}" if digits <= _SHOWN_EXACTLY else None
