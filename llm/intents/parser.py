"""Commands in plain words: "remind me in 20 minutes to check the oven", "what can you do?".

Recognises what is certainly meant as a command, in English and German, without a model. Everything
else is a question. Precision comes before recall, as a question mistaken for a command is never
answered. "forget me" and "nolog" are recognised in their exact words only; other words for the
former are the command `forget` without words, which says how it is done.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from llm.intents.forms import WHOLE
from llm.intents.question_text import forms, found_in, plain, strip_courtesies
from llm.scheduling.time_phrases import without_time


@dataclass(frozen=True, slots=True)
class Intent:
    """A command by the name under which tendrils know it, and its argument (`words`).

    `free` are the pieces of the text that were taken over as they stand, such as what a reminder is
    about; the form accounts for every word outside them.
    """

    command: str
    words: str = ""
    free: tuple[str, ...] = ()


_MY = r"(?:my|mein(?:e|en|er|em)?)"
_ASKING = re.compile(
    r"(?:again |of |about |that )?(?:what|who|whose|where|why|how|which|when|whether|if|was|wer|wo"
    r"|wie|warum|wann|welche[rns]?|ob)\b",
    re.IGNORECASE,
)
_REMIND = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?:remind me|don'?t let me forget|do not let me forget)[ ,:]+(?P<rest>.+)",
        r"erinnere? mich(?: bitte)?(?: mal)?[ ,:]+(?P<rest>.+)",
        r"(?:set|create|add|make|give|schedule)(?: me| up)? (?:a |an |another )?reminder"
        r"(?: for me)?[ ,:]+(?P<rest>.+)",
        r"(?:i (?:want|need)|i'?d like|i would like) (?:a |another )?reminder[ ,:]+(?P<rest>.+)",
        r"(?:i (?:want|need)|i'?d like|i would like) to be reminded[ ,:]+(?P<rest>.+)",
        r"(?:stelle?|setze?) (?:mir )?(?:eine )?erinnerung[ ,:]+(?P<rest>.+)",
    )
)
_REMIND_LAST = re.compile(
    r"(?P<time>[^?]{2,60}?),? (?:please )?(?:remind me|tell me|let me know|erinnere? mich)"
    r"(?: bitte)?,? (?P<rest>(?:to|that|of|about|an|daran)\b.+)",
    re.IGNORECASE,
)
_ALARM = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?P<kind>wake) me(?: up)? (?P<rest>.+)|(?P<german>wecke?) mich (?P<rest2>.+)",
        r"(?:set |start )?(?:an? )?(?P<kind>alarm|timer)(?: clock)?(?: of)? (?P<rest>.+)",
        r"(?:stelle? )?(?:einen |den )?(?P<kind>wecker|timer) (?P<rest>.+)",
        r"(?P<kind>ping|nudge|notify|alert) me (?P<rest>(?:in|at|on|every|tomorrow|tonight)\b.+)",
        r"(?:tell me|let me know) (?P<rest>(?:in|at|every|tomorrow|tonight) .+? (?:to|that) .+)",
        r"give me a (?P<kind>ping|nudge|shout) (?P<rest>(?:in|at|on|tomorrow|tonight)\b.+)",
        r"(?:set|start)(?: me)? (?:an? )?(?P<rest>\d+[ -]?\w+) (?P<kind>timer|alarm)",
    )
)
_ALARM_TEXTS = {"wake": "wake up", "alarm": "alarm", "timer": "the time is up"}
_FOR_CLOCK = re.compile(
    r"(?:for|to|auf|für) (?=\d{1,2}(?:[:.]\d\d)?(?: ?[ap]m\b| uhr\b| o'?clock\b|$|[ ,:]+(?!\w*m)))",
    re.IGNORECASE,
)
_COLON = re.compile(r"(?<=\d):(?= )")  # "at 18:00: gym"
_FOR = re.compile(r"(?:for|auf|für) ", re.IGNORECASE)

_CANCEL = r"(?:cancel|delete|remove|drop|clear|get rid of|lösche|streiche)"
_BECAUSE = r"(?:(?:,| because| since) (?P<why>.+))?"  # the reason why it is no longer needed
_CANCELS = forms(
    rf"{_CANCEL} (?:my |the |meine |die )?(?:reminder|erinnerung)"
    r"(?: number| no\.?| nr\.?| nummer)? ?#?(?P<what>\d{1,12})",
    rf"{_CANCEL} (?P<what>all)(?: of)?(?: my| the)? reminders|{_CANCEL} my reminders",
    rf"{_CANCEL} (?:alle )?(?:meine )?erinnerungen",
    rf"{_CANCEL} (?:my |the )?reminder (?:about|to|for|of|that) (?P<what>.+?){_BECAUSE}",
    rf"{_CANCEL} (?:my |the )(?P<what>.+) reminder",
    r"(?:never ?mind|forget|i (?:do not|don'?t) need) (?:my |the )?reminder"
    rf" (?:about|to|for|of|that) (?P<what>.+?)(?: any ?more| any longer)?{_BECAUSE}",
    r"(?:never ?mind|forget|i (?:do not|don'?t) need) (?:my |the )(?P<what>.+) reminder"
    r"(?: any ?more| any longer)?",
)

_REMEMBER = re.compile(
    r"(?:remember|memori[sz]e|make a note|take a note|note|keep in mind|merke? dir"
    r"|(?:don'?t|do not|never) forget)"
    r"(?P<that>,? that|,? dass|(?: this)?:)?,? (?P<rest>.+)",
    re.IGNORECASE,
)
# What is remembered are statements by people about themselves, not reminiscences.
_OF_MINE = re.compile(r"(?:i|i'm|i've|my|we|we're|our|ich|wir|mein\w*|unser\w*)\b", re.IGNORECASE)
_NO_FACT = re.compile(  # "remember the time when ...", "remember that song?"
    r"(?:time|day|one|night|evening|guy|girl|man|woman|song|movie|film|thing|old|feeling|person"
    r"|place|summer|winter|year|week|episode|scene|you|your|du|dein\w*)\b",
    re.IGNORECASE,
)
_STATES = re.compile(  # a statement has a verb, "=" or ":"
    r"\b(?:is|are|was|were|ist|sind|heißt|bin|am|have|has|like|likes|love|hate|live|work|use"
    r"|need|prefer|drink|eat|speak|mag|wohne|arbeite|nutze|trinke|habe|hat|come|moved)\b|'m\b|[=:]",
    re.IGNORECASE,
)
_FACT = forms(
    rf"(?:what|who|where|when|which|was|wer|wo|wann|wie)(?:'?s| is| are| was| were| ist| sind| war"
    rf"| heißt) {_MY} (?P<key>.+)",
    rf"(?:do you (?:know|remember)|tell me|recall|what did i say) (?:what )?{_MY} (?P<key>.+?)"
    r"(?: is| are| was)?",
    rf"(?:what|when|where|who) {_MY} (?P<key>.+) (?:is|are|was)",
)
_FACT_OF_SELF = (
    (forms(r"(?:where|wo) (?:do i live|wohne ich|is my home)"), "home"),
    (forms(r"(?:what is my name|what am i called|who am i|wie heiße ich|wer bin ich)"), "name"),
)
_FORGET_FACT = forms(
    rf"(?:forget|delete|remove|vergiss)(?: about| that)? {_MY} (?P<key>.+?)"
    r"(?: (?:is|are|ist) (?P<value>.+))?(?: again)?",
)

_ORDER = re.compile(
    r"(?:sum(?: it| that| everything)? up|summari[sz]e|recap|list|post|write|report|search|look"
    r"|check|find|count|quote|give (?:me|us)|tell (?:me|us) (?!to\b|that\b)|show (?:me|us)"
    r"|fass|fasse|liste|schreib|schreibe|berichte?|such|suche|prüf|prüfe|zähl|zähle|zeig|zeige"
    r"|gib (?:mir|uns)|sag (?:mir|uns)|erzähl|erzähle)\b",
    re.IGNORECASE,
)
_AGAIN = (
    r"(?:every|each|jede[nsmr]?|daily|weekly|monthly|hourly|täglich|wöchentlich|monatlich|stündlich"
    r"|werktags|weekdays)\b"
)
_AGAIN_PLACES = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"(?:on |am )?{_AGAIN}",
        rf"\w+ (?:(?:bitte|mal|mir|uns|hier) )*{_AGAIN}",  # "fasse bitte jeden freitag ..."
        # "post the news every day at 9", but not "find out about every game at 9"
        rf".*(?<!about)(?<!for)(?<!of)(?<!with)(?<!über)(?<!von)(?<!für) {_AGAIN}[\w, ]*"
        r" (?:at|um) \d{1,2}(?:[:.]\d\d)?(?: ?[ap]m| o'?clock| uhr)?$",
    )
)

_SEARCH = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"search(?: (?:the |this )?(?:log|logs|channel|chat|history))? for (?P<words>.+)",
        r"search (?:the |this )?(?:log|logs|channel|chat|history):? (?P<words>.+)",
        r"(?:find|look for|look up|search|show me) (?:all |any |the |old )?"
        r"(?:messages|lines|mentions|posts)(?: here)?"
        r" (?:about|with|of|containing|that mention|mentioning|on) (?P<words>.+)",
        r"(?:find|look up|look for|show me) (?:what|anything that|everything that)"
        r" (?:was|has been|is) (?:said|written|posted) (?:about|on) (?P<words>.+)",
        r"(?:look up|look for|find|search(?: for)?|grep(?: for)?) (?P<words>.+)"
        r" in (?:the |this |our )?(?:chat |channel )?(?:logs?|history|channel|chat)",
        r"(?:look for|search(?: for)?|find) (?:what|anything|everything)(?: that)?"
        r" (?:people|we|anyone|anybody|others) (?:have |has )?(?:said|wrote|written|posted)"
        r" (?:about|on) (?P<words>.+)",
        r"suche? nach (?P<words>.+)",
        r"(?:suche?|finde) (?:nachrichten|zeilen) (?:über|mit|zu) (?P<words>.+)",
    )
)
_NO_SEARCH = re.compile(
    r"\b(?:on|in|with|via) (?:the )?(?:web|internet|online|wikipedia|duckduckgo)\b"
    r"|\bmeaning\b|\bgoogle\b",
    re.IGNORECASE,
)
# Exact words only, not even with a "please": these remove everything about a person, or switch
# off their log.
_EXACT = {
    "forget me": Intent("forget", "me"),
    "vergiss mich": Intent("forget", "me"),
    "nolog": Intent("nolog"),
    "nolog off": Intent("nolog", "off"),
}
_MAX_SEARCH_WORDS = 8  # words
_ARTICLE = re.compile(r"^(?:the|any|der|die|das|den|dem) ", re.IGNORECASE)


def read_intent(text: str, facts: Collection[str] = ()) -> Intent | None:
    """Return the command that a text to the bot really is, None if it is a question.

    `facts` are the keys of the facts remembered about the asker; only these can be recalled or
    forgotten. They are worth loading only if `may_ask_for_fact`.
    """
    wish = strip_courtesies(text)
    if not wish:
        return None
    asked = wish.lower()
    if exact := _EXACT.get(plain(text).lower().rstrip(" .!")):
        return exact
    for (command, words), questions in WHOLE.items():
        if found_in(questions, asked) is not None:
            return Intent(command, words)
    return (
        _reminder(wish)
        or _schedule(wish)
        or _cancelling(asked)
        or _of_fact(asked, facts)
        or _remembering(wish, is_question=_is_question(text))
        or _searching(wish)
    )


def may_ask_for_fact(text: str) -> bool:
    """Return whether a text may ask to recall or forget a fact, so that the asker's facts are worth
    loading."""
    asked = strip_courtesies(text).lower()
    every = (_FACT, _FORGET_FACT, *(questions for questions, _ in _FACT_OF_SELF))
    return any(found_in(questions, asked) is not None for questions in every)


def _is_question(text: str) -> bool:
    """Return whether a text ends with a question mark and is no polite order ("can you ...?")."""
    said = plain(text)
    polite = re.match(r"(?:\w+[,:]? )?(?:please |can |could |would |will |kannst )", said, re.I)
    return said.rstrip().endswith("?") and not polite


def _reminder(wish: str) -> Intent | None:
    if wish.lower() in ("remind me", "erinnere mich", "set a reminder", "set reminder"):
        return Intent("remind")
    for form in _REMIND:
        if match := form.fullmatch(wish):
            rest = _COLON.sub("", _FOR_CLOCK.sub("at ", match["rest"]))
            if _ASKING.match(rest):  # "remind me what ada said" wants an answer
                return None
            text = without_time(_FOR.sub("", rest, count=1))
            if text is not None:
                words = _FOR.sub("", rest, count=1) if _FOR.match(rest) else rest
                return Intent("remind", words, (text,))
            # Without a time only "remind me to DO something" is surely meant as a reminder.
            is_task = re.match(r"(?:to (?!the\b|a\b|my\b)\w|daran)", rest, re.IGNORECASE)
            return Intent("remind", rest, (rest,)) if is_task else None
    if match := _REMIND_LAST.fullmatch(wish):
        if without_time(match["time"]) == "" and not _ASKING.match(match["rest"]):
            return Intent("remind", f"{match['time']} {match['rest']}", (match["rest"],))
        return None
    return _alarm(wish)


def _alarm(wish: str) -> Intent | None:
    for form in _ALARM:
        if match := form.fullmatch(wish):
            found = {name: part for name, part in match.groupdict().items() if part}
            rest = found.get("rest") or found.get("rest2", "")
            rest = _FOR.sub("", _FOR_CLOCK.sub("at ", rest), count=1)
            text = without_time(rest)
            kind = (found.get("kind") or ("wake" if "german" in found else "tell")).lower()
            kind = "alarm" if kind == "wecker" else kind
            if text is None or (kind == "wake" and text):
                return None
            if kind == "tell" and not text:
                return None
            if text and kind in ("ping", "nudge", "shout", "notify", "alert", "tell"):
                return Intent("remind", rest, (text,))
            words = rest if text else f"{rest} {_ALARM_TEXTS.get(kind, kind)}"
            return Intent("remind", words, (text,))
    return None


def _schedule(wish: str) -> Intent | None:
    """Return a recurring task for the model: a time followed by an order, or an order followed by
    a recurrence with a time of day."""
    if not any(form.match(wish) for form in _AGAIN_PLACES):
        return None
    order = without_time(wish)
    return Intent("schedule", wish, (order,)) if order and _ORDER.match(order) else None


def _cancelling(asked: str) -> Intent | None:
    found = found_in(_CANCELS, asked)
    if found is None:
        return None
    return Intent("reminders", f"cancel {found.get('what') or 'all'}", tuple(found.values()))


def _of_fact(asked: str, facts: Collection[str]) -> Intent | None:
    """Return the command that recalls or forgets a known fact."""
    known = {_comparable(key): key for key in facts}
    for own, of_self in _FACT_OF_SELF:
        if of_self in known and found_in(own, asked) is not None:
            return Intent("recall", known[of_self])
    for command, questions in (("recall", _FACT), ("forget", _FORGET_FACT)):
        found = found_in(questions, asked)
        key = known.get(_comparable(found["key"])) if found else None
        if key:
            words = f"my {key}" if command == "forget" else key
            return Intent(command, words, (found.get("value", ""),) if found else ())
    return None


def _comparable(key: str) -> str:
    """Return a fact's key in the form for comparison: "favorite_tea" as "favourite tea"."""
    return _ARTICLE.sub("", re.sub(r"[\s_-]+", " ", key.lower())).replace("favorite", "favourite")


def _remembering(wish: str, *, is_question: bool) -> Intent | None:
    match = _REMEMBER.fullmatch(wish)
    if not match or is_question:
        return None
    rest, that = match["rest"].strip(), (match["that"] or "").strip(" ,").lower()
    verb = wish.split()[0].lower()
    if _NO_FACT.match(rest) or not _STATES.search(rest):
        return None
    # "remember that ..." and "note: ..." are certain; anything else must be about the speaker.
    is_sure = that.endswith(":") or (that in ("that", "dass") and verb in ("remember", "memorize"))
    if not is_sure and not (_OF_MINE.match(rest) and (verb != "note" or that)):
        return None
    return Intent("remember", f"that {rest}" if that in ("that", "dass") else rest, (rest,))


def _searching(wish: str) -> Intent | None:
    if _NO_SEARCH.search(wish):
        return None
    for form in _SEARCH:
        if match := form.fullmatch(wish):
            words = _ARTICLE.sub("", match["words"].strip())
            is_short = len(words.split()) <= _MAX_SEARCH_WORDS
            return Intent("search", words, (words,)) if is_short else None
    return None
