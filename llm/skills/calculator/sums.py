"""Sums as people write them, worked out without running anything."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

Number = int | float

_LONGEST = 200  # characters
_DIGITS = 300.0  # of a whole number: its length bounds how long a sum can take

_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "ln": math.log,
    "log": math.log10,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_CONSTANTS = {"e": math.e, "pi": math.pi, "tau": math.tau}


class NoSum(ValueError):
    """The text is no sum, or one without a result; the message says why."""


def worked_out(text: str) -> Number:
    """The result of a sum. Raises NoSum."""
    if len(text) > _LONGEST:
        raise NoSum("that is too long")
    python = text.strip().replace("^", "**").replace("×", "*").replace("÷", "/")
    python = python.replace(" x ", " * ").replace(",", ", ").rstrip("= ")
    try:
        return _value(ast.parse(python, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise NoSum("that is no sum") from error
    except (ArithmeticError, ValueError, TypeError) as error:
        raise NoSum(str(error) or "it has no result") from error


def shown(number: Number) -> str:
    """A number for people: twelve digits that count, at most."""
    if isinstance(number, int):
        return str(number)
    return f"{number:.12g}"


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name.lower() in _CONSTANTS:
            return _CONSTANTS[name.lower()]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _real(_BINARY[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _real(_FUNCTIONS[name](*map(_value, args)))
    raise NoSum("a sum has numbers, + - * / ^ ( ) and " + ", ".join(_FUNCTIONS))


def _power(base: Number, exponent: Number) -> Number:
    if abs(exponent) * math.log10(max(abs(base), 2)) > _DIGITS:
        raise NoSum("the result is too large")
    return _real(base**exponent)


def _real(value: object) -> Number:
    if isinstance(value, int) and value.bit_length() > _DIGITS * 4:
        raise NoSum("the result is too large")
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    raise NoSum("it has no real result")
