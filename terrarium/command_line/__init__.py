"""Commands: their options from a dataclass, their tables of text."""
