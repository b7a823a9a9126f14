"""Questions about what was said: "who said ... about ...?", "when did bob last speak?".

They are understood by their form, without a model; `llm.log_questions.answers` answers them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from enum import Enum

from llm.log_questions.time_spans import ALL_TIME, TimeSpan, time_span
from storage.passages.question_words import question_words

_LONGEST_QUESTION = 400  # characters that are read


class Wish(Enum):
    """Which of the lines that fit somebody wants."""

    BEST = "best"
    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """A question to the log: for lines of `nick` (None: of anybody) about `topic`
    ("": about anything), in a `span` of time. `about_time` says that they ask when it was;
    `whole_topic` has the words of time that were read as `span`, as they may be part of it."""

    topic: str
    nick: str | None = None
    wish: Wish = Wish.BEST
    about_time: bool = False
    span: TimeSpan = ALL_TIME
    whole_topic: str = ""


_SAYING = (
    r"(?:sa(?:y|ys|id|ying)|mention(?:s|ed|ing)?|talk(?:s|ed|ing)?|sp(?:eak|eaks|oke|oken|eaking)|"
    r"w(?:rite|rites|rote|ritten|riting)|post(?:s|ed|ing)?|t(?:ell|ells|old|elling)|"
    r"ask(?:s|ed|ing)?|discuss(?:es|ed|ing)?|suggest(?:s|ed|ing)?|complain(?:s|ed|ing)?|"
    r"claim(?:s|ed|ing)?|announc(?:e|es|ed|ing)|br(?:ing|ings|ought|inging)(?: it)? up|"
    r"th(?:ink|inks|ought)|recommend(?:s|ed|ing)?|propos(?:e|es|ed|ing)|promis(?:e|es|ed|ing)|"
    r"report(?:s|ed|ing)?|stat(?:e|es|ed|ing)|chat(?:s|ted|ting)?|link(?:s|ed|ing)?|comment(?:s|ed|"
    r"ing)?|explain(?:s|ed|ing)?|know|knows|knew)"
)
_TELLS = (  # of these verbs the bare object is a topic; "who wrote the parser" is about a parser
    r"(?:sa(?:y|ys|id|ying)|mention(?:s|ed|ing)?|discuss(?:es|ed|ing)?|br(?:ing|ings|ought) up|"
    r"announc(?:e|es|ed|ing)|talk(?:s|ed|ing)? about)"
)
_ABOUT = r"(?:about|on|regarding|concerning|re|of|that|whether|if|why|how)"
_THING = r"(?:something|anything|sth|stuff|things?|it|us|me|everyone|a word|words?)"
_BY = r"(?P<nick>[^\s,?!]+)"
_NOW_AND_THEN = r"(?:(?:ever|already|just|also|recently|actually|here|again|once|even|lately) )*"
_TOPIC = rf"(?:(?: {_THING})?(?: to (?:us|me|you|everyone))?(?: {_ABOUT})? (?P<topic>.+))"
_LAST = r"(?:last|most recently|lately)"
_PEOPLE = (
    r"(?:any ?(?:one|body)|some ?(?:one|body)|people|we|they|every(?:one|body)|the others|"
    r"(?:any|one) of (?:you|us)|folks|others)"
)
_HERE = (
    r"(?: (?:here|in (?:here|this channel|the channel|the logs?|chat)|on (?:here|this channel)))?"
)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"{text}{_HERE}", re.IGNORECASE)


_FORMS: Sequence[tuple[re.Pattern[str], Wish, bool]] = [
    (_pattern(text), wish, about_time)
    for text, wish, about_time in (
        # when did bob last speak (about the pump)? when was bob last here?
        (rf"when {_BY} {_LAST} (?:{_SAYING}{_TOPIC}?|was here|showed up)", Wish.NEWEST, True),
        (rf"when (?:did|has|have) {_BY} {_LAST} {_SAYING}{_TOPIC}?", Wish.NEWEST, True),
        (rf"when (?:did|has) {_BY} {_SAYING} (?:{_THING} )?{_LAST}", Wish.NEWEST, True),
        (rf"when (?:was|is) {_BY} {_LAST} (?:here|seen|active|around|online|talking|speaking)",
         Wish.NEWEST, True),
        (rf"when (?:did|has) {_BY} {_LAST} (?:appear|show up|show|come by|visit|been here)",
         Wish.NEWEST, True),
        (rf"when (?:was|is) {_BY} (?:here|around|online|on|active) {_LAST}", Wish.NEWEST, True),
        (rf"have you (?:seen|heard(?: anything)? from) {_BY}(?: around| lately| today| recently)?",
         Wish.NEWEST, True),
        (rf"(?:has|is|was) {_BY} (?:been )?(?:here|around|online|on|active|seen)"
         rf"(?: today| lately| recently| yet)?", Wish.NEWEST, True),
        (rf"(?:when was|when is) the last time (?:that )?{_BY} (?:has |had |was )?"
         rf"(?:{_SAYING}|here|active|seen){_TOPIC}?", Wish.NEWEST, True),
        (rf"when (?:was|were|did) (?P<topic>.+?) (?:{_LAST}|come up last) "
         rf"(?:{_SAYING}|been {_SAYING}|come up|came up)(?: about)?", Wish.NEWEST, True),
        # what was the last thing bob said (about the pump)?
        (rf"(?:what (?:was|is|were)|show me|quote|give me)? ?(?:the )?"
         rf"(?:last|latest|newest|most recent) "
         rf"(?:thing|line|message|words?|sentence|comment)s? (?:that |which )?"
         rf"(?:(?:from|by|of) )?{_BY}(?:(?: has| had)? {_SAYING}{_TOPIC}?)?", Wish.NEWEST, False),
        (rf"what (?:did|has|have) {_BY} {_LAST} {_SAYING}{_TOPIC}?", Wish.NEWEST, False),
        (rf"what (?:did|has|have) {_BY} {_SAYING} {_LAST}", Wish.NEWEST, False),
        (rf"what (?:was|were|is|are) {_BY}'?s? (?:last|latest) (?:words?|message|line|comment)s?",
         Wish.NEWEST, False),
        # when was the pump first mentioned? who was the first to mention it?
        (rf"who (?:{_SAYING}|came up with){_TOPIC} (?:first|originally)", Wish.OLDEST, False),
        (rf"when (?:was|were|did) (?P<topic>.+?) (?:first|originally) "
         rf"(?:{_SAYING}|come up)(?: about)?", Wish.OLDEST, True),
        (rf"when did {_BY} first {_SAYING}{_TOPIC}?", Wish.OLDEST, True),
        (rf"who (?:first|originally) {_SAYING}{_TOPIC}", Wish.OLDEST, False),
        (rf"who was (?:the )?first (?:one |person )?(?:to|who|that) {_SAYING}{_TOPIC}",
         Wish.OLDEST, False),
        (rf"who {_NOW_AND_THEN}(?:told|asked) \S+ (?:{_ABOUT}|for) (?P<topic>.+)",
         Wish.BEST, False),
        # when did bob say ...? when was ... mentioned?
        (rf"when (?:did|has|have) {_BY} {_SAYING}{_TOPIC}", Wish.BEST, True),
        (rf"when (?:was|were) (?P<topic>.+?) {_SAYING}(?: about)?", Wish.NEWEST, True),
        # who said ...?
        (rf"who (?:was it|is it|was the (?:one|person)|here|else)?(?: ?(?:that|who|which))? ?"
         rf"(?:has |had |have |was |is |were )?{_NOW_AND_THEN}{_TELLS}{_TOPIC}", Wish.BEST, False),
        (rf"who (?:was it|is it|was the (?:one|person)|here|else)?(?: ?(?:that|who|which))? ?"
         rf"(?:has |had |have |was |is |were )?{_NOW_AND_THEN}{_SAYING}(?: {_THING})?"
         rf"(?: to (?:us|me))? (?:{_ABOUT}|for) (?P<topic>.+)", Wish.BEST, False),
        (rf"(?:which (?:person|one|user|nick)|what person) {_NOW_AND_THEN}{_SAYING}{_TOPIC}",
         Wish.BEST, False),
        (rf"by whom was (?P<topic>.+?) {_SAYING}", Wish.BEST, False),
        # what did bob say about ...? what was said about ...?
        (rf"what (?:all )?(?:was|were|has been|had been|is) {_NOW_AND_THEN}{_SAYING}{_TOPIC}",
         Wish.BEST, False),
        (rf"what (?:all |else |exactly )?(?:(?:did|has|have|had|does|do|was|were|is) )?{_BY} "
         rf"(?:have to |had to |been )?{_NOW_AND_THEN}{_SAYING}(?! (?:about|on|of)$){_TOPIC}",
         Wish.BEST, False),
        (rf"what (?:did|has|have|had|was|were) {_BY} (?:have to )?(?:been )?{_NOW_AND_THEN}"
         rf"{_SAYING}(?: {_ABOUT})?", Wish.NEWEST, False),
        (rf"what(?:'s| is| was| are| were)? {_BY}'s? "
         rf"(?:opinion|view|take|advice|thoughts?|comments?|messages?|lines?|words?|news)s?"
         rf" {_ABOUT} (?P<topic>.+)", Wish.BEST, False),
        (rf"(?:show me|quote|give me|find|repeat) (?:what )?{_BY}(?: has| had)? {_SAYING}{_TOPIC}",
         Wish.BEST, False),
        (rf"(?:quote|cite) {_BY} {_ABOUT} (?P<topic>.+)", Wish.BEST, False),
        (rf"(?:any|is there any|was there any) (?:word|news|message|line)s? (?:from|by) {_BY}"
         rf" {_ABOUT} (?P<topic>.+)", Wish.BEST, False),
        (rf"(?:show me|find|quote) (?:what|everything|anything)(?: that)? (?:was|has been|is)"
         rf" {_SAYING}{_TOPIC}", Wish.BEST, False),
        # did bob say ...? has anybody mentioned ...?
        (rf"(?:did|has|have|had) {_PEOPLE} {_NOW_AND_THEN}{_SAYING}{_TOPIC}", Wish.BEST, False),
        (rf"(?:did|has|have|had) {_BY} {_NOW_AND_THEN}{_SAYING}{_TOPIC}", Wish.BEST, False),
        (rf"(?:did|has|have|had) {_BY} {_NOW_AND_THEN}{_SAYING}(?: {_THING})?", Wish.NEWEST, False),
        (rf"(?:was|were|has|have|is) (?P<topic>.+?) (?:been )?{_NOW_AND_THEN}"
         r"(?:mentioned|discussed|talked about|brought up|spoken of)", Wish.BEST, False),
        (r"(?:is there |was there |are there )?(?:any|some) "
         r"(?:mentions?|talk|discussions?|lines?|word)"
         r" (?:of|about|on) (?P<topic>.+)", Wish.BEST, False),
        (r"(?:is|was) there (?:anything|something) (?:in the logs? |said |here )?(?:about|on) "
         r"(?P<topic>.+)", Wish.BEST, False),
    )
]  # fmt: skip
_OPENING = re.compile(
    r"^(?:(?:hey|hi|hello|so|ok|okay|and|please|well|um|hm+|btw|sorry|excuse me)[,!.]? +|"
    r"(?:can|could|would|will) (?:you|anyone|someone|anybody) (?:please )?(?:tell me|remind me|"
    r"look up|check|find out|say) *,? *|(?:do|does) (?:you|anyone|anybody|someone) "
    r"(?:happen to )?(?:know|remember|recall) *,? *|(?:tell|remind) me *,? *|"
    r"i (?:wonder|was wondering|want to know|would like to know|forgot) *,? *|"
    r"(?:according|from) (?:to )?the logs?,? *)+",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"(?:,? +(?:please|again|here|in here|in (?:this|the) (?:channel|log|logs|chat)|thanks|"
    r"by the way|btw|exactly|earlier|before|then))+$|[\s?!.]+$",
    re.IGNORECASE,
)
_NOBODY_TEXT = """
you u i me it this that he she him her the a an to there who what my our your his their its time
day was were has have is are did do been be all any something anything nothing
"""
_NOBODY = frozenset(_NOBODY_TEXT.split())
_ANYBODY = re.compile(_PEOPLE, re.IGNORECASE)


def read_log_question(
    text: str,
    nicks: Collection[str],
    *,
    who: str = "",
    now: datetime | None = None,
    zone: tzinfo = UTC,
) -> LogQuestion | None:
    """Return what a question wants of the log, None when it is not about what was said.

    `nicks` are those that are known; also another word that stands where a nick does is taken for
    one, as people come and go. `who` is the nick of who asks: "what did I say about ...?". Words
    of time are read as meant at `now` in `zone`.
    """
    said = _strip_courtesies(text[:_LONGEST_QUESTION])
    span, rest = time_span(said, now or datetime.now(UTC), zone)
    question = _read(_strip_courtesies(rest), nicks, who) or _read(said, nicks, who)
    if question is None:
        return None
    whole = _read(said, nicks, who) or question
    return replace(question, span=span, whole_topic=whole.topic)


def _read(said: str, nicks: Collection[str], who: str) -> LogQuestion | None:
    for pattern, wish, about_time in _FORMS:
        match = pattern.fullmatch(said)
        if match is None:
            continue
        named = match.groupdict()
        topic = _strip_courtesies(named.get("topic") or "")
        nick = named.get("nick")
        if nick is None or _ANYBODY.fullmatch(nick):
            if topic and question_words(topic).words:
                return LogQuestion(topic, None, wish, about_time)
            continue
        nick = _match_nick(nick, nicks, who)
        if nick is not None:
            return LogQuestion(topic, nick, wish, about_time)
    return None


def _match_nick(word: str, nicks: Collection[str], who: str) -> str | None:
    """Return the nick that a word is, None when it is none."""
    for each in (word, word.removesuffix("'s"), word.removesuffix("’s")):
        for nick in nicks:
            if nick.lower() == each.lower():
                return nick
    if word.lower() in ("i", "me") and who:
        return who
    return None if word.lower() in _NOBODY or not word[0].isalpha() else word.removesuffix("'s")


def _strip_courtesies(text: str) -> str:
    """Return a question without its courtesies."""
    text = " ".join(text.split())
    while True:
        shorter = _CLOSING.sub("", _OPENING.sub("", text)).strip(" ,")
        if shorter == text:
            return text
        text = shorter
