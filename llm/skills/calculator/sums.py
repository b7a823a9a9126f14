"""Safe evaluator of arithmetic: Python's parser reads the sum, and only arithmetic is carried out.

Values are exact fractions until a constant, function or power is irrational.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import statistics
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction

Number = Fraction | float

_MAX_LENGTH = 200  # characters
_MAX_DEPTH = 100  # nested operations
_MAX_DIGITS = 300  # of an integer: bounds the time of any operation on it
_MAX_BITS = int(_MAX_DIGITS * math.log2(10))
_MAX_FACTORIAL = 150
_DECIMAL_DIGITS = 15  # most significant digits of an exact decimal fraction
_SIGNIFICANT_DIGITS = 12  # of an inexact number


class ExpressionError(ValueError):
    """The text is not a sum, or its result is undefined or too large; the message says why."""


class DivisionByZero(ExpressionError):
    """The text is a sum, but divides by zero."""

    def __init__(self) -> None:
        super().__init__("division by zero has no result")


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum as it is displayed and its result; `is_operation` unless it is a number alone."""

    text: str
    value: Number
    is_operation: bool

    def __str__(self) -> str:
        return f"{self.text} {equals(self.value)}"


def format_number(number: Number) -> str:
    """Return a number for people: exact if that is short, else with twelve significant digits."""
    if isinstance(number, Fraction):
        if number.denominator == 1:
            return str(number.numerator)
        if exact := _decimal(number):
            return exact
    return f"{float(number):.{_SIGNIFICANT_DIGITS}g}"


def equals(number: Number) -> str:
    """Return "= 12.5" or, if not all digits are shown, "≈ 3.33333333333"."""
    exact = isinstance(number, Fraction) and (number.denominator == 1 or _decimal(number))
    return f"{'=' if exact else '≈'} {format_number(number)}"


def _decimal(number: Fraction) -> str:
    """Return a number as an exact decimal, "" if that is periodic or too long."""
    exactly = Context(prec=_DECIMAL_DIGITS, traps=[Inexact])
    try:
        return f"{exactly.divide(Decimal(number.numerator), Decimal(number.denominator)):f}"
    except Inexact:
        return ""


_TOKEN = re.compile(
    r"(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?(?:e[+-]?\d{1,3}(?![\w.]))?(?![\d.])"
    r"|\.\d+(?![\d.])|[½⅓⅔¼¾])|(?P<percent>%)(?!\s*(?!of\b|x\b|mod\b)[\w(.√½⅓⅔¼¾])"
    r"|\*\*|//|[a-zäöüπ]+\d*|\S",
    re.IGNORECASE,
)
_BARE_OPERAND = re.compile(r"([a-z]\w*) +(n\d+)")
_SHOWN = re.compile(r"n\d+|\[\d\]| \*\* |//|[*/@%]|sqrt|cbrt|(?<=rt)\((n\d+)\)")
# In Python's syntax: signs after an operand bind tightest, as subscripts do, "of" as "*" does.
_SIGNS = {sign: sign for sign in ("+", "-", "*", "/", "//", "**", "%", "(", ")", ",")}
_SIGNS |= {"^": "**", "×": "*", "·": "*", "x": "*", "of": "@", "÷": "/", "mod": "%"}
_SIGNS |= {"√": "sqrt", "!": "[1]", "²": "[2]", "³": "[3]"}
_PRETTY = {" ** ": "^", "[0]": "%", "[1]": "!", "[2]": "²", "[3]": "³"}
_PRETTY |= {"*": "×", "/": "÷", "@": "of", "%": "mod", "sqrt": "√", "cbrt": "∛"}
_FRACTIONS = "½⅓⅔¼¾"
_CONSTANTS: dict[str, Number] = {"e": math.e, "pi": math.pi, "π": math.pi, "tau": math.tau}
_OPERATIONS = (ast.BinOp, ast.Call, ast.Subscript)


def evaluate(text: str) -> Sum:
    """Evaluate a sum written in symbols. Raises ExpressionError, DivisionByZero among them."""
    if len(text) > _MAX_LENGTH:
        raise ExpressionError("that is too long")
    numbers: dict[str, str] = {}  # their spellings by the names that they have in Python's syntax

    def translate(match: re.Match[str]) -> str:
        token = match[0].lower()
        if match["percent"]:
            return "[0]"
        if match["number"]:
            name = f"n{len(numbers)}"
            numbers[name] = token
            return f" {name} "
        if token in _CONSTANTS or token in _FUNCTIONS:
            return f" {token} "
        if token not in _SIGNS:
            raise ExpressionError("that is not an arithmetic expression")
        return f"{_SIGNS[token]} "

    python = _BARE_OPERAND.sub(r"\1(\2)", _TOKEN.sub(translate, text.strip().rstrip("= ")))
    try:
        body = ast.parse(python.strip(), mode="eval").body
        values = dict(_CONSTANTS)
        for name, spelling in numbers.items():
            _, _, exponent = spelling.partition("e")
            if len(spelling) > 60 or (exponent and abs(int(exponent)) > _MAX_DIGITS):
                raise ExpressionError("that number is too long")
            if spelling in _FRACTIONS:
                values[name] = Fraction(unicodedata.numeric(spelling)).limit_denominator(10)
            else:
                values[name] = Fraction(spelling.replace(",", ""))
        value = _value(body, values, 0)
    except ZeroDivisionError as error:
        raise DivisionByZero from error
    except ExpressionError:
        raise
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ExpressionError("that is not an arithmetic expression") from error
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ExpressionError(str(error) or "it has no result") from error
    shown = _SHOWN.sub(
        lambda match: numbers.get(match[1] or match[0]) or _PRETTY.get(match[0], match[0]),
        ast.unparse(body),
    )
    operations = [node for node in ast.walk(body) if isinstance(node, _OPERATIONS)]
    return Sum(shown, value, not all(map(_is_percent, operations)))


def _value(node: ast.expr, numbers: Mapping[str, Number], depth: int) -> Number:
    """Return the value of a node of the syntax tree. Raises ExpressionError and ArithmeticError."""
    if depth > _MAX_DEPTH:
        raise ExpressionError("that has too many brackets")
    match node:
        case ast.Name(name) if name in numbers:
            return numbers[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, numbers, depth + 1)
        case ast.UnaryOp(ast.UAdd(), operand):
            return _value(operand, numbers, depth + 1)
        case ast.Subscript(operand, ast.Constant(int(sign))):
            value = _value(operand, numbers, depth + 1)
            if sign > 1:
                return check_bounds(power(value, Fraction(sign)))
            return factorial(value) if sign else value / 100
        case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
            values = [_value(each, numbers, depth + 1) for each in arguments]
            return check_bounds(_FUNCTIONS[name](*values))
        case ast.BinOp(left, operation, right):
            one, other = _value(left, numbers, depth + 1), _value(right, numbers, depth + 1)
            if isinstance(operation, ast.Add | ast.Sub) and _is_percent(right):
                other *= one  # as on a pocket calculator, "80 + 15%" adds 15 % of the 80
            return check_bounds(_OPERATORS[type(operation)](one, other))
    raise ExpressionError("a sum has numbers, + - * / ^ ( ) and " + ", ".join(_FUNCTIONS))


def _is_percent(node: ast.AST) -> bool:
    """Return whether a node of the syntax tree is a percentage such as "15%"."""
    return isinstance(node, ast.Subscript) and getattr(node.slice, "value", None) == 0


def root(number: Number, degree: int) -> Number:
    """Return the square or cube root, exactly if it is rational. Raises ExpressionError."""
    if number < 0 and degree == 2:
        raise ExpressionError("a negative number has no real square root")
    if isinstance(number, Fraction):
        # Guess from floats the roots of numerator and denominator, then check the guess exactly.
        whole = [round(abs(part) ** (1 / degree)) for part in number.as_integer_ratio()]
        found = Fraction(whole[0], whole[1] or 1) * (1 if number >= 0 else -1)
        if found**degree == number:
            return found
    return math.copysign(abs(float(number)) ** (1 / degree), number)


def factorial(number: Number) -> Number:
    """Return n! for an integer from 0 to 150. Raises ExpressionError."""
    if not 0 <= number <= _MAX_FACTORIAL:
        raise ExpressionError(f"I know the factorials of 0 to {_MAX_FACTORIAL}")
    return Fraction(math.factorial(_whole(number)))


def power(base: Number, exponent: Number) -> Number:
    """Return the power, exactly if it is rational and not too long. Raises ExpressionError."""
    if isinstance(base, Fraction) and exponent == Fraction(1, 2):
        return root(base, 2)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        # Estimate the bits of the result before computing it: a power such as 9^9^9 would never
        # end. They are at least half of the estimate.
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if base in (-1, 0, 1) or bits * abs(exponent) <= 4 * _MAX_BITS:
            return Fraction(base**exponent)
    try:
        result = float(base) ** float(exponent)
    except OverflowError:
        raise ExpressionError("the result is too large") from None
    if isinstance(result, complex):
        raise ExpressionError("it has no real result")
    if base and not result:
        raise ExpressionError("the result is too close to zero")
    return float(result)


def check_bounds(value: Number) -> Number:
    """Return a value; a fraction is rounded if it is too long to be exact. Raises ExpressionError
    if the value is too large, too close to zero or not finite."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError("it has no real result")
    elif max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        if value.denominator == 1 or abs(value) >= 10**_MAX_DIGITS:
            raise ExpressionError("the result is too large")
        value = float(value)
        if not value:
            raise ExpressionError("the result is too close to zero")
    return value


def _whole(number: Number) -> int:
    if number != int(number):
        raise ExpressionError("only whole numbers have that")
    return int(number)


def _round(number: Number, digits: Number = Fraction(0)) -> Number:
    if not -_MAX_DIGITS <= digits <= _MAX_DIGITS:
        raise ExpressionError("that number is too long")
    return Fraction(round(Fraction(number), int(digits)))


def _real_only(function: Callable[..., float]) -> Callable[..., Number]:
    return lambda *values: function(*map(float, values))


_OPERATORS: Mapping[type[ast.operator], Callable[..., Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.MatMult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda one, other: Fraction(one // other),
    ast.Mod: operator.mod,
    ast.Pow: power,
}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "abs": abs,
    "average": lambda *values: statistics.mean(values),
    "cbrt": lambda number: root(number, 3),
    "ceil": lambda number: Fraction(math.ceil(number)),
    "cos": _real_only(math.cos),
    "exp": _real_only(math.exp),
    "factorial": factorial,
    "floor": lambda number: Fraction(math.floor(number)),
    "gcd": lambda *values: Fraction(math.gcd(*map(_whole, values))),
    "lcm": lambda *values: Fraction(math.lcm(*map(_whole, values))),
    "ln": _real_only(math.log),
    "log": _real_only(math.log10),
    "log10": _real_only(math.log10),
    "log2": _real_only(math.log2),
    "max": max,
    "median": lambda *values: statistics.median(values),
    "min": min,
    "round": _round,
    "sin": _real_only(math.sin),
    "sqrt": lambda number: root(number, 2),
    "tan": _real_only(math.tan),
}
