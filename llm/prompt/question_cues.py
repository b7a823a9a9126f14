"""Cues in the words of a question: to the one before it, to the time, to the talk."""

from __future__ import annotations

import re

_GOING_ON = re.compile(
    r"(?:and|or|but|also|so|then|else|no|nope|not|yes|yeah|actually|sorry|wait|oh|ok|okay|again|more"
    r"|i meant?|what about|how about|what if|why|how so|how come|really|are you sure|go on|continue"
    r"|tell me more|explain|elaborate|another|which one|who else|what else|where else|same"
    r"|und|oder|aber|also|warum|wieso|wirklich|noch|nein|doch|was ist mit)\b"
    r"|\*\w|s/[^/]+/",
    re.IGNORECASE,
)
_REFERRING = re.compile(
    r"\b(?:it|its|that|this|those|these|they|them|their|he|him|his|she|her|hers|there|then"
    r"|the (?:first|second|third|last|latter|former|other|same)(?: one)?"
    r"|das|dies\w*|er|ihn|ihm|ihr|ihre|dort)\b",
    re.IGNORECASE,
)
_IMPERSONAL = re.compile(
    r"\b(?:(?:time|day|date) is it|is it (?:true|possible|safe|ok|okay|legal|raining|hot|cold)"
    r"|does it (?:take|cost|mean to)|it takes|is there|are there|was there|were there"
    r"|that (?:is|are|was|were|has|have|can|will)|(?:say|know|think|said|means?) that)\b",
    re.IGNORECASE,
)
_ABOUT_TIME = re.compile(
    r"\b(?:today|tonight|now|tomorrow|yesterday|current(?:ly)?|date|day|week|month|year|ago|until"
    r"|since|old|age|morgen|heute|gestern)\b",
    re.IGNORECASE,
)
_ABOUT_TALK = re.compile(
    r"\b(?:summar\w+|sum (?:it |this |that )?up|tl;?dr|recap|catch me up|what did i miss"
    r"|what (?:just )?happened|what(?:'s| is) (?:going on|happening|the (?:topic|talk|discussion))"
    r"|(?<!last )(?:talk|talking|discuss|discussing|arguing|chatting|saying|said) (?:about )?"
    r"(?:here|now|just)"
    r"|(?:are|were|is) (?:they|people|everyone|everybody|we|you all|folks) \w+ing"
    r"|this (?:channel|conversation|discussion|chat|thread)|just (?:said|now|asked|mentioned)"
    r"|fasse? .*zusammen|worum geht)\b",
    re.IGNORECASE,
)
_LONG_ANSWER = re.compile(
    r"^\W*(?:(?:please|can you|could you) )?(?:tell|write|explain|describe|list|give me|compare"
    r"|name (?:some|three|\d)|why|what are|summar\w+|erkläre?|schreib)\b",
    re.IGNORECASE,
)
_HOW_TO = re.compile(
    r"^\W*(?:(?:please|can you|could you) )?"
    r"(?:(?:tell|show|teach|explain to) \w+ |explain |describe )?"
    r"(?:how (?:do|does|did|to|can|could|should|would)"
    r"|wie (?:mach\w*|kann|koch\w*|geht|soll\w*))\b",
    re.IGNORECASE,
)
_LONGEST = 9  # words; a longer question says itself what it is about


def goes_on(question: str) -> bool:
    """Return whether a question can only be understood together with the one before it.

    It begins as people go on ("and in winter?", "what about spain?", "no, the other one"), or it
    is short and refers to what was said ("how old is he?").
    """
    text = question.strip()
    if _GOING_ON.match(text):
        return True
    short = len(text.split()) <= _LONGEST
    return short and _REFERRING.search(_IMPERSONAL.sub("", text)) is not None


def is_about_time(question: str) -> bool:
    """Return whether the answer depends on today's date or on the time of day."""
    return _ABOUT_TIME.search(question) is not None


def wants_long_answer(question: str) -> bool:
    """Return whether one sentence is too little of an answer: a story, a list, an explanation."""
    return _LONG_ANSWER.search(question) is not None


def asks_how(question: str) -> bool:
    """Return whether a question asks for a way to do something, or how something works."""
    return _HOW_TO.search(question) is not None


def is_about_talk(question: str) -> bool:
    """Return whether a question is about the present talk as a whole: "what did I miss?"."""
    return _ABOUT_TALK.search(question) is not None
