"""Canned answers to courtesies and requests to translate, which a tiny model gets wrong."""

from __future__ import annotations

import re

from llm.intents.question_text import plain

_NAME = r"(?:[ ,]+(?:all|bot|dear|everyone|folks|friend|mate|my friend|terra(?:rium)?|there|you))?"
_END = r"[\s.,!?:;()D]*"

_COURTESIES = tuple(
    (re.compile(rf"(?:{said}){_NAME}{_END}", re.IGNORECASE), answer)
    for said, answer in (
        (
            r"(?:ok(?:ay)?,? |great,? |nice,? )?(?:many |a lot of )?(?:thanks|thank you|thx|ty|tyvm"
            r"|cheers)(?:,? (?:again|a lot|so much|very much|for (?:that|your help|the help)))?"
            r"|danke(?: ?(?:schön|sehr|dir))?|vielen dank",
            "You are welcome.",
        ),
        (
            r"(?:hi|hello|hey|howdy|greetings|good (?:morning|afternoon|evening|day)|hallo|moin"
            r"|servus|guten (?:morgen|tag|abend))",
            "Hello! Ask me something.",
        ),
        (
            r"(?:(?:hi|hello|hey)[ ,]+)?(?:how are you(?: doing| today)?|how do you do"
            r"|how(?:'s| is) it going|what'?s up|wie geht(?:'?s| es)(?: dir)?)",
            "I am fine, thank you.",
        ),
        (
            r"(?:bye|bye bye|goodbye|good night|see you(?: later| soon)?|cu|farewell|tschüss"
            r"|gute nacht)",
            "Bye.",
        ),
        (
            r"(?:good|clever|nice|best|great) (?:bot|job|work|answer|one)|well done|gut gemacht"
            r"|(?:that(?:'s| is| was) )?(?:great|nice|cool|awesome|perfect|correct|right)"
            r"|i (?:love|like) you",
            "Thank you.",
        ),
        (r"(?:i am |i'm )?(?:very |so )?sorry|my (?:bad|apologies)|entschuldigung", "No problem."),
    )
)
_TRANSLATE = re.compile(
    r"(?:(?:please|can you|could you|bitte) )*"
    r"(?:translate\b.+|übersetze?\b.+|(?:what is|what'?s|how (?:do|would|can) (?:you|i|we) say"
    r"|how to say|say|was heißt) .+ (?:in|auf) (?:arabic|chinese|czech|danish|dutch|esperanto"
    r"|finnish|french|german|greek|hebrew|hindi|hungarian|italian|japanese|korean|latin|norwegian"
    r"|polish|portuguese|romanian|russian|spanish|swedish|turkish|ukrainian|welsh"
    r"|deutsch|englisch|französisch|spanisch|italienisch))[\s?.!]*",
    re.IGNORECASE,
)
ONLY_ENGLISH = "My model is too small for other languages than English; please ask in English."
CANNOT_TRANSLATE = "My model is too small to translate; whoever runs me can give me a larger one."


def small_talk_answer(question: str) -> str | None:
    """Return the canned answer to a courtesy or a request to translate, None for other texts."""
    text = plain(question)
    if _TRANSLATE.fullmatch(text):
        return CANNOT_TRANSLATE
    return next((answer for said, answer in _COURTESIES if said.fullmatch(text)), None)
