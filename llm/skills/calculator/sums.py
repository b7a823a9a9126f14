"""Safe evaluator of arithmetic expressions, a recursive-descent parser that never runs code.

Values are exact fractions until a constant, function or power is irrational. The grammar:

sum      = term   { ("+" | "-") term }
term     = signed { ("*" | "/" | "//" | "mod" | "of") signed }
signed   = "-" signed | power
power    = posted [ "^" signed ]
posted   = operand { "!" | "%" }
operand  = NUMBER | CONSTANT | FUNCTION signed | FUNCTION "(" sum { "," sum } ")" | "(" sum ")"
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

Number = Fraction | float

_MAX_DIGITS = 300.0  # of an integer: bounds the time of any operation on it
_MAX_BITS = int(_MAX_DIGITS * math.log2(10))
_MAX_NUMBER = 10 ** int(_MAX_DIGITS)
_MAX_FACTORIAL = 150
_MAX_DECIMAL_DIGITS = 15  # digits of a decimal fraction
_SIGNIFICANT_DIGITS = 12  # significant digits of an inexact number


class ExpressionError(ValueError):
    """The text is not a sum, or its result is undefined or too large; the message says why."""


class DivisionByZero(ExpressionError):
    """The text is a sum, but divides by zero."""

    def __init__(self) -> None:
        super().__init__("division by zero has no result")


def format_number(number: Number) -> str:
    """Return a number for people: exact if that is short, else with twelve significant digits."""
    if isinstance(number, float):
        return f"{number:.{_SIGNIFICANT_DIGITS}g}"
    if number.denominator == 1:
        return str(number.numerator)
    exact = _decimal(number)
    return exact if exact is not None else f"{float(number):.{_SIGNIFICANT_DIGITS}g}"


def equals(number: Number) -> str:
    """Return "= 12.5" or, if not all digits are shown, "≈ 3.33333333333"."""
    exact = isinstance(number, Fraction) and (number.denominator == 1 or _decimal(number))
    return f"{'=' if exact else '≈'} {format_number(number)}"


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
    if not isinstance(number, Fraction) or number.denominator != 1:
        raise ExpressionError("only a whole number has a factorial")
    if not 0 <= number <= _MAX_FACTORIAL:
        raise ExpressionError(f"I know the factorials of 0 to {_MAX_FACTORIAL}")
    return Fraction(math.factorial(int(number)))


def power(base: Number, exponent: Number) -> Number:
    """Return the power, exactly if it is rational and not too long. Raises ExpressionError."""
    if isinstance(base, Fraction) and exponent == Fraction(1, 2):
        return root(base, 2)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        # Estimate the bits of the result before computing it: a power such as 9^9^9 would never
        # end. They are at least half of the estimate.
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if base in (-1, 0, 1) or bits * abs(exponent) <= 4 * _MAX_BITS:
            return check_bounds(base**exponent)
    try:
        result = float(base) ** float(exponent)
    except OverflowError:
        raise ExpressionError("the result is too large") from None
    if isinstance(result, complex):
        raise ExpressionError("it has no real result")
    if base and not result:
        raise ExpressionError("the result is too close to zero")
    return check_bounds(result)


def check_bounds(value: Number | int) -> Number:
    """Return a value as a `Number`; a fraction is rounded if it is too long to be exact. Raises
    ExpressionError if the value is too large, too close to zero or not finite."""
    if isinstance(value, int):
        value = Fraction(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError("it has no real result")
    elif max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        if value.denominator == 1 or abs(value) >= _MAX_NUMBER:
            raise ExpressionError("the result is too large")
        value = float(value)
        if not value:
            raise ExpressionError("the result is too close to zero")
    return value


def _decimal(number: Fraction) -> str | None:
    """Return a number as an exact decimal, None if that is periodic or too long."""
    # A reduced fraction has a finite decimal form only if 2 and 5 are its denominator's primes.
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return None
    exact = Context(prec=_MAX_DECIMAL_DIGITS + 5).divide(
        Decimal(number.numerator), Decimal(number.denominator)
    )
    digits = len(exact.normalize().as_tuple().digits)
    return f"{exact.normalize():f}" if digits <= _MAX_DECIMAL_DIGITS else None


_MAX_LENGTH = 200  # characters
_MAX_DEPTH = 40  # nested brackets and signs: bounds the recursion
_MAX_EXPONENT = 300  # the largest exponent of a literal in scientific notation

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?(?:e[+-]?\d{1,3}(?![\w.]))?"
    r"|\.\d+)(?![\d.])|(?P<word>[a-zäöü]+\d*)|(?P<symbol>\*\*|//|[-+*/^%!(),×÷·√²³½⅓¼¾⅔]))",
    re.IGNORECASE,
)
_LISTS = re.compile(r"\b(?:gcd|lcm|max|min|round)\s*\(", re.IGNORECASE)
_SIGNS = {"**": "^", "×": "*", "·": "*", "÷": "/", "√": "sqrt"}
_FRACTIONS = {
    "½": Fraction(1, 2),
    "⅓": Fraction(1, 3),
    "⅔": Fraction(2, 3),
    "¼": Fraction(1, 4),
    "¾": Fraction(3, 4),
}
_BINARY: Mapping[str, Callable[[Number, Number], Number]] = {
    "*": operator.mul,
    "of": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "mod": operator.mod,
}
_CONSTANTS = {"e": math.e, "pi": math.pi, "π": math.pi, "tau": math.tau}
_PRETTY = {"*": "×", "/": "÷", "sqrt": "√", "cbrt": "∛"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a sum; `kind` is number, constant, function or sign, `text` its spelling."""

    kind: str
    text: str
    value: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum as it is displayed, its result, and its number of operations."""

    text: str
    value: Number
    operations: int

    def __str__(self) -> str:
        return f"{self.text} {equals(self.value)}"


def evaluate(text: str) -> Sum:
    """Evaluate a sum written in symbols. Raises ExpressionError, DivisionByZero among them."""
    if len(text) > _MAX_LENGTH:
        raise ExpressionError("that is too long")
    tokens = _tokens(text.strip().rstrip("= "))
    try:
        value = _Reader(tokens).whole()
    except ZeroDivisionError as error:
        raise DivisionByZero from error
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise ExpressionError(str(error) or "it has no result") from error
    operands = sum(token.kind in ("number", "constant") for token in tokens)
    functions = sum(token.kind == "function" or token.text == "!" for token in tokens)
    return Sum(_shown_tokens(tokens), value, functions + operands - 1)


def _real_only(function: Callable[..., float]) -> Callable[..., Number]:
    return lambda *values: function(*map(float, values))


def _round(number: Number, digits: Number = Fraction(0)) -> Number:
    return Fraction(round(Fraction(number), int(digits)))


_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "abs": abs,
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
    "min": min,
    "round": _round,
    "sin": _real_only(math.sin),
    "sqrt": lambda number: root(number, 2),
    "tan": _real_only(math.tan),
}


class _Reader:
    """Recursive-descent parser and evaluator of one sum; each method is a rule of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Number:
        """Return the value of the whole sum. Raises ExpressionError."""
        value = self._sum()
        if self._at < len(self._tokens):
            raise ExpressionError("that is no sum")
        return value

    def _sum(self) -> Number:
        value = self._term()
        while sign := self._take("+", "-"):
            begin = self._at
            right = self._term()
            # As on a pocket calculator, "80 + 15%" adds 15 % of the 80.
            alone = self._at - begin == 2 and self._tokens[self._at - 1].text == "%"
            right = right * value if alone else right
            value = check_bounds(value + right if sign == "+" else value - right)
        return value

    def _term(self) -> Number:
        value = self._unary()
        while sign := self._take(*_BINARY):
            value = check_bounds(_BINARY[sign](value, self._unary()))
        return value

    def _unary(self) -> Number:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ExpressionError("that has too many brackets")
        negative = self._take("-", "+")
        value = self._unary() if negative else self._power()
        self._depth -= 1
        return -value if negative == "-" else value

    def _power(self) -> Number:
        # The exponent is a `signed`, which makes "^" right-associative and allows "2^-1"; the base
        # is not, so that "-2^2" is -4.
        value = self._postfix()
        return power(value, self._unary()) if self._take("^") else value

    def _postfix(self) -> Number:
        value = self._operand()
        while self._at < len(self._tokens):
            if self._tokens[self._at].text == "%" and self._is_remainder():
                break
            sign = self._take("!", "%")
            if not sign:
                break
            value = factorial(value) if sign == "!" else value / 100
        return value

    def _is_remainder(self) -> bool:
        """Return whether the "%" here is a modulo operator, with a right operand: "10 % 3", unlike
        "10 %", "10% of 3" and "10% + 3". If so, replace its token by "mod"."""
        following = self._tokens[self._at + 1 : self._at + 2]
        if following and (following[0].kind != "sign" or following[0].text == "("):
            self._tokens[self._at] = Token("sign", "mod")
            return True
        return False

    def _operand(self) -> Number:
        if self._at >= len(self._tokens):
            raise ExpressionError("that is no sum")
        token = self._tokens[self._at]
        self._at += 1
        if token.kind == "number":
            return token.value
        if token.kind == "constant":
            return _CONSTANTS[token.text]
        if token.kind == "function":
            return check_bounds(_FUNCTIONS[token.text](*self._arguments()))
        if token.text == "(":
            return self._bracket()
        raise ExpressionError("a sum has numbers, + - * / ^ ( ) and " + ", ".join(_FUNCTIONS))

    def _arguments(self) -> list[Number]:
        if not self._take("("):
            return [self._unary()]
        values = [self._sum()]
        while self._take(","):
            values.append(self._sum())
        if not self._take(")"):
            raise ExpressionError("a bracket is not closed")
        return values

    def _bracket(self) -> Number:
        value = self._sum()
        if not self._take(")"):
            raise ExpressionError("a bracket is not closed")
        return value

    def _take(self, *signs: str) -> str:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind == "sign" and token.text in signs:
                self._at += 1
                return token.text
        return ""


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ExpressionError("that is no sum")
        at = match.end()
        tokens += _token(match, tokens)
    return tokens


def _token(match: re.Match[str], before: list[Token]) -> list[Token]:
    if number := match["number"]:
        return [Token("number", number, _number(number))]
    if word := (match["word"] or "").lower():
        if word in _CONSTANTS:
            return [Token("constant", word)]
        if word in _FUNCTIONS:
            return [Token("function", word)]
        # "2 x 3"; at the beginning it is an unknown.
        if word == "x" and before:
            return [Token("sign", "*")]
        if word in ("mod", "of"):
            return [Token("sign", word)]
        raise ExpressionError("that is no sum")
    symbol = _SIGNS.get(match["symbol"], match["symbol"])
    if symbol == "sqrt":
        return [Token("function", symbol)]
    if symbol in _FRACTIONS:
        return [Token("number", symbol, _FRACTIONS[symbol])]
    if symbol in "²³":
        return [Token("sign", "^"), Token("number", symbol, Fraction(2 if symbol == "²" else 3))]
    return [Token("sign", symbol)]


def _number(text: str) -> Fraction:
    exponent = re.search(r"e([+-]?\d+)$", text, re.IGNORECASE)
    if len(text) > 60 or (exponent and abs(int(exponent[1])) > _MAX_EXPONENT):
        raise ExpressionError("that number is too long")
    return Fraction(text.replace(",", ""))


def _shown_tokens(tokens: list[Token]) -> str:
    """Render tokens with spaces around binary operators."""
    text, operand = "", False  # whether an operand has just ended
    for token in tokens:
        piece = _PRETTY.get(token.text, token.text)
        if token.text in ("²", "³"):
            text = text.removesuffix("^") + piece
        elif token.text in ("^", "!", "%", ")") or not operand:
            text += piece
        elif token.text == ",":
            text += ", "
        elif token.kind == "sign" and token.text != "(":
            text += f" {piece} "
        else:
            text += piece
        operand = token.kind in ("number", "constant") or token.text in ("!", "%", ")")
    return text


def _whole(number: Number) -> int:
    if number != int(number):
        raise ExpressionError("only whole numbers have that")
    return int(number)
