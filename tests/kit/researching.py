"""A scripted model that does a research as it is told, and two things that it is not told."""

from __future__ import annotations

import json
import re
from typing import Any

from storage.passages.words import content_stems

INVENTED = "The moon is made of cheese."
"""A claim that the model writes about any source, and that it does not confirm later."""

UNFOUNDED = "Everybody agrees."
"""A claim for which the model names a source that was not shown."""

_SOURCE = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
_SAID = re.compile(r"\S+ \[[^\]]+\] <([^>]+)> (.*)")


def obey(body: dict[str, Any]) -> str:
    """Return the answer to a request of a research: a plan of the question itself, claims that
    repeat the nearest lines, and verdicts of whether a source has the words of a claim."""
    order, asked = (str(message["content"]) for message in body["messages"][:2])
    if order.startswith("You plan"):
        question = _between("request", asked)
        return json.dumps({"topics": [{"title": "What people said", "searches": [question]}]})
    if order.startswith("You check"):
        verdicts = []
        for number, claim in re.findall(r"^(\d+)\. claim: (.*(?:\n   source: .*)+)", asked, re.M):
            text, _, sources = claim.partition("\n")
            words = text.partition(": ")[2] or text
            verdicts.append({"claim": int(number), "supported": words in sources})
        return json.dumps({"verdicts": verdicts})
    wanted = content_stems(_between("request", asked))
    near = sorted(
        _SOURCE.findall(_between("sources", asked)),
        key=lambda each: -len(wanted & content_stems(each[1])),
    )
    claims = []
    for number, text in near[:3]:
        said = _SAID.fullmatch(text)
        told = f"{said[1]} says: {said[2]}" if said else text
        claims.append({"text": told, "sources": [int(number)], "quote": ""})
    claims.append({"text": INVENTED, "sources": [1], "quote": ""})
    claims.append({"text": UNFOUNDED, "sources": [9_999], "quote": ""})
    return json.dumps({"claims": claims, "more": []})


def _between(tag: str, text: str) -> str:
    return text.partition(f"<{tag}>\n")[2].partition(f"\n</{tag}>")[0]
