"""Front matter: the keys at the head of a Markdown file, between two lines `---`.

It is YAML with a value or a list of values under each key. Values are read as text, whatever type
YAML would give them; the pydantic model of the keys converts them. Nested maps and tags other than
YAML's own are errors that name the line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from terrarium.config import ConfigError, require_known

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""The pattern of the `name` of a persona or a skill."""

_FENCE = "---"
_TAG = re.compile(r"tag:yaml\.org,2002:[a-z]+")
_MAX_CHARACTERS = 100_000  # characters of a file

Value = str | list[str]
M = TypeVar("M", bound=BaseModel)


def parse(kind: type[M], path: Path) -> tuple[M, str]:
    """Parse a file; return the keys at its head as `kind`, and the text below them. Raises
    ConfigError, which names the file and the key, and for an unknown key the nearest known one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if len(text) > _MAX_CHARACTERS:
        raise ConfigError(f"{path} is too long: {len(text):,} characters")
    try:
        values, body = split(text)
        require_known(values, kind.model_fields)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    try:
        return kind.model_validate(values), body
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{path}: {key}: {reason}") from error


def split(text: str) -> tuple[dict[str, Value], str]:
    """Split a text into keys and body, without front matter all of it. Raises ValueError."""
    first, *lines = re.split(r"\r?\n", text)
    if first.rstrip() != _FENCE:
        return {}, text.strip()
    end = next((place for place, line in enumerate(lines) if line.rstrip() == _FENCE), None)
    if end is None:
        raise ValueError(f"the front matter has no end: a line {_FENCE} is missing")
    head, body = "".join(f"{each}\n" for each in lines[:end]), "\n".join(lines[end + 1 :]).strip()
    # Composed, not constructed: no YAML type or tag is ever made into a Python object.
    try:
        root = yaml.compose(head, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        # YAML counts lines from 0, and `head` begins after the first line `---`.
        raise ValueError(f"line {line + 2}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"the front matter is no YAML: {error}") from error
    except RecursionError as error:
        raise ValueError("the front matter is nested too deeply") from error
    if root is None:
        return {}, body
    if not isinstance(root, yaml.MappingNode):
        raise _error(root, 'write "key: value"')
    found: dict[str, Value] = {}
    for key, value in root.value:
        name = _scalar(key)
        if name in found:
            raise _error(key, f"{name} is there twice")
        if isinstance(value, yaml.SequenceNode) and _TAG.fullmatch(value.tag):
            found[name] = [_scalar(item) for item in value.value]
        else:
            text = _scalar(value)
            found[name] = [] if not text and value.tag.endswith(":null") else text
    return found, body


def _scalar(node: yaml.Node) -> str:
    if not _TAG.fullmatch(node.tag):
        raise _error(node, f"the tag {node.tag} is unknown")
    if not isinstance(node, yaml.ScalarNode):
        raise _error(node, "write a value or a list of values")
    return str(node.value)


def _error(node: yaml.Node, reason: str) -> ValueError:
    return ValueError(f"line {node.start_mark.line + 2}: {reason}")
