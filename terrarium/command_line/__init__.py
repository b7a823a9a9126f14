"""Helpers for commands: options from a dataclass, and tables of text."""
