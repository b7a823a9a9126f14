"""Questions about what was said: "who said ... about ...?", "when did bob last speak?".

They are recognised by their form, without a model; `llm.log_questions.answers` answers them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum

from storage.chat_log.query import Query
from storage.passages.words import question_words

_MONTH_NAMES = (
    "january february march april may june july august september october november december"
)
_MONTHS = _MONTH_NAMES.split()
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "a couple of": 2, "three": 3, "a few": 3, "few": 3,
    "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12,
}  # fmt: skip
_LENGTHS = {
    "minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1),
    "week": timedelta(weeks=1), "month": timedelta(days=30.5), "year": timedelta(days=365.25),
}  # fmt: skip
_COUNT = (
    r"(?P<count>\d{1,4}|a couple of|a few|few|an?|one|two|three|four|five|six|seven|eight|nine|ten|"
    r"twelve)"
)
_UNIT = r"(?P<unit>minute|hour|day|week|month|year)s?"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_YEAR = r"(?P<year>(?:19[89]|20\d)\d)"
# In order of precedence: "since last week" is tried before "last week".
_SPAN_FORMS = [
    (kind, re.compile(rf"(?:^|(?<=\s)),?\s*(?:{pattern})(?=[\s,?!.]|$)", re.IGNORECASE))
    for kind, pattern in (
        ("ago", rf"(?:about |some )?{_COUNT} {_UNIT} ago"),
        ("past", rf"(?:in|within|during|over) the (?:last|past) (?:{_COUNT} )?{_UNIT}"),
        ("date", r"(?:on )?(?P<date>\d{4}-\d\d-\d\d)"),
        ("month", rf"(?P<how>in|since|during|before|last|this|back in) {_MONTH}"
                  rf"(?:,? (?:of )?{_YEAR})?"),
        ("year", rf"(?P<how>in|since|during|before|back in) {_YEAR}"),
        ("since", r"since (?P<named>yesterday|last week|last month|last year|this morning)"),
        ("named", r"(?P<named>yesterday|today|tonight|this morning|last night|"
                  r"(?:last|this) (?:week|month|year)|(?:the )?day before yesterday)"),
        ("weekday", rf"(?:on|last|this) (?P<day>{'|'.join(_DAYS)})"),
    )
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The time from `since` until `until` (exclusive; aware; None: unbounded), as people wrote it
    in `words`."""

    since: datetime | None = None
    until: datetime | None = None
    words: str = ""

    def __bool__(self) -> bool:
        """Return False for all time, which restricts nothing."""
        return self.since is not None or self.until is not None

    @property
    def phrase(self) -> str:
        """The words with a leading space, to append to a sentence; "" for all time."""
        return f" {self.words}" if self.words else ""

    def within(self, query: Query) -> Query:
        """Return `query`, narrowed to this span."""
        sinces = [time for time in (query.since, self.since) if time]
        untils = [time for time in (query.until, self.until) if time]
        return replace(query, since=max(sinces, default=None), until=min(untils, default=None))


ALL_TIME = TimeSpan()


def time_span(text: str, now: datetime, zone: tzinfo) -> tuple[TimeSpan, str]:
    """Return the time span that a text names, relative to `now` in `zone`, and the text without it.

    Without such words this is ALL_TIME and the whole text.
    """
    for kind, pattern in _SPAN_FORMS:
        match = pattern.search(text)
        if match is None:
            continue
        try:
            since, until = _ends(kind, match.groupdict(), now.astimezone(zone))
        except (ValueError, OverflowError):  # "on 2026-02-31", "5000 years ago"
            continue
        rest = " ".join(f"{text[: match.start()]} {text[match.end() :]}".split())
        words = match[0].strip(" ,")
        span = TimeSpan(since and since.astimezone(UTC), until and until.astimezone(UTC), words)
        return span, rest
    return ALL_TIME, text


def _ends(
    kind: str, named: dict[str, str | None], now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the start of a span and its exclusive end. Raises ValueError and OverflowError."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    match kind:
        case "ago":
            return _ago(_number(named["count"]), named["unit"] or "", now)
        case "past":
            return now - _number(named["count"] or "one") * _LENGTHS[
                (named["unit"] or "").lower()
            ], None
        case "date":
            day = datetime.fromisoformat(named["date"] or "").replace(tzinfo=now.tzinfo)
            return day, day + timedelta(days=1)
        case "month" | "year":
            return _calendar(named, midnight)
        case "since":
            return _named_span((named["named"] or "").lower(), midnight)[0], None
        case "weekday":  # on a Monday, "on monday" is a week ago
            back = (now.weekday() - _DAYS.index((named["day"] or "").lower())) % 7 or 7
            return midnight - timedelta(days=back), midnight - timedelta(days=back - 1)
    return _named_span((named["named"] or "").lower(), midnight)


def _number(text: str | None) -> int:
    word = (text or "").lower()
    return int(word) if word.isdigit() else _NUMBERS[word]


def _ago(count: int, unit: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the span around so long ago: the whole day for days, else half a unit, plus five
    minutes, before and after."""
    length = _LENGTHS[unit.lower()]
    if unit.lower() == "day":
        day = (now - count * length).replace(hour=0, minute=0, second=0, microsecond=0)
        return day, day + length
    middle = now - count * length
    return middle - length / 2 - timedelta(minutes=5), middle + length / 2 + timedelta(minutes=5)


def _calendar(
    named: dict[str, str | None], midnight: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return a month or a year as a span; a month without a year is the last one that has begun."""
    how = (named["how"] or "").lower()
    first = midnight.replace(day=1)
    if name := named.get("month"):
        month = _MONTHS.index(name.lower()) + 1
        year = int(named.get("year") or 0) or midnight.year - (month > midnight.month)
        since = first.replace(year=year, month=month)
        until = _next_month(since)
    else:
        since = first.replace(year=int(named["year"] or 0), month=1)
        until = since.replace(year=since.year + 1)
    if how == "since":
        return since, None
    return (None, since) if how == "before" else (since, until)


def _next_month(first: datetime) -> datetime:
    return (first + timedelta(days=32)).replace(day=1)  # no month has 32 days


def _named_span(name: str, midnight: datetime) -> tuple[datetime, datetime]:
    day = timedelta(days=1)
    monday, first = midnight - midnight.weekday() * day, midnight.replace(day=1)
    last_month = (first - day).replace(day=1)
    spans = {
        "yesterday": (midnight - day, midnight),
        "today": (midnight, midnight + day),
        "tonight": (midnight, midnight + day),
        "this morning": (midnight, midnight + day / 2),
        "last night": (midnight - day / 4, midnight + day / 4),
        "last week": (monday - 7 * day, monday),
        "this week": (monday, monday + 7 * day),
        "last month": (last_month, first),
        "this month": (first, _next_month(first)),
        "last year": (first.replace(year=first.year - 1, month=1), first.replace(month=1)),
        "this year": (first.replace(month=1), first.replace(year=first.year + 1, month=1)),
    }
    return spans.get(name, (midnight - 2 * day, midnight - day))  # the day before yesterday


_MAX_QUESTION_LENGTH = 400  # characters that are read


class Wish(Enum):
    """Which of the matching lines are wanted."""

    BEST = "best"
    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """A question to the log for lines by `nick` (None: anybody) about `topic` ("": anything) within
    a time `span`.

    `about_time`: it asks when that was said. `whole_topic` includes the words that were taken for
    the span, as they may belong to the topic.
    """

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


# In order of precedence: the first form that matches the whole question counts.
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
    """Return what a question asks of the log, None if it is not about what was said.

    `nicks` are the known ones; an unknown word in the place of a nick is taken for one too, as
    people come and go. `who` is the asker's nick, which "I" stands for. Words of time are relative
    to `now` in `zone`.
    """
    said = _strip_courtesies(text[:_MAX_QUESTION_LENGTH])
    span, rest = time_span(said, now or datetime.now(UTC), zone)
    # Without the words of time first; some forms need them.
    question = _read(_strip_courtesies(rest), nicks, who) or _read(said, nicks, who)
    if question is None:
        return None
    whole = _read(said, nicks, who) or question
    # "what was said this week?" asks for any lines of that time, but "when was last week
    # mentioned?" is about these words.
    if not question.about_time and question.topic.lower() == span.words.lower():
        question = replace(question, topic="")
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
    """Return the nick that a word stands for, None if it cannot be one."""
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
