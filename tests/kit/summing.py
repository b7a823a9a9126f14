"""A model that sums up without forgetting: what it makes of prompts can be checked word by word."""

from __future__ import annotations

import re
from typing import Any


def seen(body: dict[str, Any]) -> str:
    """Every word like q12 that a prompt of memory has, once, in order; of facts, none."""
    task, shown = (message["content"] for message in body["messages"])
    if "JSON" in task:
        return '{"facts": []}'
    return "seen " + " ".join(dict.fromkeys(re.findall(r"q\d+", shown)))
