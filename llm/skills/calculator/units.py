"""Units of measure, by their usual names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_FACTORS: Mapping[str, Mapping[str, float]] = {
    "m": {
        "mm": 0.001,
        "cm": 0.01,
        "m": 1,
        "meter": 1,
        "metre": 1,
        "km": 1000,
        "kilometer": 1000,
        "kilometre": 1000,
        "inch": 0.0254,
        "foot": 0.3048,
        "ft": 0.3048,
        "feet": 0.3048,
        "yard": 0.9144,
        "yd": 0.9144,
        "mile": 1609.344,
        "mi": 1609.344,
    },
    "kg": {
        "mg": 1e-6,
        "g": 0.001,
        "gram": 0.001,
        "kg": 1,
        "kilogram": 1,
        "kilo": 1,
        "t": 1000,
        "tonne": 1000,
        "oz": 0.028349523125,
        "ounce": 0.028349523125,
        "lb": 0.45359237,
        "lbs": 0.45359237,
        "pound": 0.45359237,
        "stone": 6.35029318,
    },
    "l": {
        "ml": 0.001,
        "cl": 0.01,
        "l": 1,
        "liter": 1,
        "litre": 1,
        "cup": 0.2365882365,
        "pint": 0.473176473,
        "quart": 0.946352946,
        "gallon": 3.785411784,
        "gal": 3.785411784,
    },
    "B": {
        "bit": 0.125,
        "byte": 1,
        "b": 1,
        "kb": 1e3,
        "mb": 1e6,
        "gb": 1e9,
        "tb": 1e12,
        "pb": 1e15,
        "kib": 2**10,
        "mib": 2**20,
        "gib": 2**30,
        "tib": 2**40,
        "pib": 2**50,
    },
    "s": {
        "ms": 0.001,
        "s": 1,
        "sec": 1,
        "second": 1,
        "min": 60,
        "minute": 60,
        "h": 3600,
        "hour": 3600,
        "day": 86400,
        "week": 604800,
    },
    "m/s": {"kmh": 1 / 3.6, "kph": 1 / 3.6, "mph": 0.44704, "knot": 1852 / 3600},
}
_TO_KELVIN: Mapping[str, Callable[[float], float]] = {
    "c": lambda degrees: degrees + 273.15,
    "f": lambda degrees: (degrees - 32) / 1.8 + 273.15,
    "k": lambda degrees: degrees,
}
_FROM_KELVIN: Mapping[str, Callable[[float], float]] = {
    "c": lambda kelvin: kelvin - 273.15,
    "f": lambda kelvin: (kelvin - 273.15) * 1.8 + 32,
    "k": lambda kelvin: kelvin,
}
_TEMPERATURES = {"celsius": "c", "fahrenheit": "f", "kelvin": "k", "°c": "c", "°f": "f", "°k": "k"}


class NoUnit(ValueError):
    """There is no such unit, or the two measure different things."""


def converted(value: float, unit: str, to: str) -> float:
    """A measure in another unit. Raises NoUnit."""
    unit, to = _plain(unit), _plain(to)
    if unit in _TO_KELVIN and to in _FROM_KELVIN:
        return round(_FROM_KELVIN[to](_TO_KELVIN[unit](value)), 6)
    for factors in _FACTORS.values():
        if unit in factors and to in factors:
            return value * factors[unit] / factors[to]
    raise NoUnit(f"{unit} cannot be converted to {to}")


def _plain(name: str) -> str:
    """The name as the tables have it: no plural, one spelling."""
    name = name.strip().lower()
    name = _TEMPERATURES.get(name, name)
    if name == "inches":
        return "inch"
    known = any(name in factors for factors in _FACTORS.values())
    return name if known else name.removesuffix("s")
