"""The words of the asker that a call needs before it changes something or opens a page.

A model reads what strangers wrote, in lines of the log and on pages, and may do what it says there.
So what a tool does for a person depends on neither: the toolbox compares each call with what that
person has said, by the rule that the tool names in its option `asked`. A rule returns why the call
must not run, with what the asker can write, or "". Other tools with effects are governed by `needs`
alone.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm.messages.message import ShownText
from llm.reading.reading import names_nothing, speaks_of_all, words_beside_frame
from llm.web.links import address_key, addresses_in
from storage.passages.words import content_stems, rarity

Rights = Callable[[], Collection[str]]
"""Returns the current rights of the person asking."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The person for whom the tools of a turn run.

    `words` are their question, "" if nobody asked; `earlier` returns what they said before in this
    conversation, if anything. `calls_for` are the tools of the skills that the question itself
    brings in. `kind` is that of the question as it was read, in any language; "" if that was not
    sure.
    """

    who: str = "nobody"
    words: str = ""
    rights: Rights = frozenset
    earlier: Callable[[], Awaitable[Sequence[str]]] | None = None
    private: bool = True
    calls_for: frozenset[str] = frozenset()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class RunSoFar:
    """The follow-ups by which the asker `joined` the run, and the `results` of its successful tool
    calls, each with the name of the tool; of tools that quote people, the lines that they quote.

    `shown` are the lines of the log in the results. A tool that has to know the run has a parameter
    of this type, which is hidden from the model.
    """

    joined: Sequence[str] = ()
    results: Sequence[tuple[str, str]] = ()
    shown: Sequence[ShownText] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """The texts that a call is judged by: those of the asker in this turn (`now`) and before, and
    those in which addresses were `found` that may be opened.

    `kind` is that of the question, `listed` what tools have listed in this turn of the asker's own.
    """

    who: str
    now: Sequence[str]
    earlier: Sequence[str] = ()
    found: Sequence[str] = ()
    kind: str = ""
    listed: Sequence[str] = ()

    def listed_line(self, beginning: str) -> str:
        """Return the listed line that begins so, "" if there is none."""
        lines = (line for text in self.listed for line in text.splitlines())
        return next((line for line in lines if line.startswith(beginning)), "")


Rule = Callable[[Said, Mapping[str, Any]], str]
"""Returns the reason why a call with these arguments must not run, "" if there is none."""

_KICK = "kick|kickban|remove|throw|eject|boot"
_BAN = "ban|kickban|akick|block"
_DELETE = "forget|unlearn|cancel|delete|remove|drop"
_REMIND = "remind|nudge|ping|poke|notify|alert|wake"

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
# A talk about kicks is no order to kick: "why was bob kicked?", "never ban bob".
_NO_ORDER = re.compile(
    r"\s*(?:(?:and|but|so|hey|please)\W+)?(?:who|what|when|where|why|how|which|if|did|do|does|was|were"
    r"|is|are|has|have|had|should|shall|may|might|must)\w*\b"
    r"|.*\b(?:not|never|cannot|\w+n['’]t|(?:do|ca|wo|should|would|could|must)nt)\b",
    re.IGNORECASE,
)
_REQUEST = r"\b(?:can|could|will|would) you(?: please| just| now)?"
_ORDER = rf"(?:\A|[,;]|{_REQUEST}|\b(?:please|pls|and|then|now|also|just))\s*(?:{{verbs}})\b"

_MODE = re.compile(r"(?<!\S)[+-][a-zA-Z]+\b")

LISTS = frozenset({"recall", "reminders"})
"""The tools that list what the asker has: each thing in a line, after its name or number."""

_EVERYDAY = 4.0  # the `rarity` of the words up to which a model may choose its own


def to_operate(*acts: str) -> Rule:
    """Return the rule that the asker orders one of these acts by its name, and has written whom or
    what it is about. Without names, as of a mode, what it is about tells the act."""

    def rule(said: Said, given: Mapping[str, Any]) -> str:
        about = [given[name] for name in ("change", "text", "nick") if given.get(name)]
        for name in about:
            if not any(map(_mention(name).search, said.now)):
                return f"{said.who} has not written {name}"
        # An order of something else may have the words, too: "set the topic to: bob is great".
        is_named = not acts or any(_mention(act).search(text) for act in acts for text in said.now)
        is_asked = is_named and said.kind == "order" and not _NO_ORDER.match(said.now[0])
        return "" if is_asked else _not_asked(said, f"an order: {' '.join([*acts[:1], *about])}")

    return rule


def to_forget(said: Said, given: Mapping[str, Any]) -> str:
    """The asker orders to forget the fact, which may be named by any of its words if a tool has
    listed it in this turn; for all of them with exactly "forget all"."""
    scope = given["scope"]
    if scope.strip().lower() == "all":
        is_asked = any(text.strip(" .!").lower() == "forget all" for text in said.now)
    else:
        fact = said.listed_line(f"{scope.strip().lower()} = ")
        is_asked = any(
            stands_in(scope, sentence) or _speaks_of(sentence, fact, "forget_fact")
            for sentence in _orders(said, _DELETE, "forget_fact")
        )
    return "" if is_asked else _not_asked(said, f"forget {scope}")


def to_unlearn(said: Said, given: Mapping[str, Any]) -> str:
    """The asker orders to forget the skill."""
    name = given["name"]
    is_asked = any(stands_in(name, sentence) for sentence in _orders(said, _DELETE))
    return "" if is_asked else _not_asked(said, f"unlearn {name}")


def to_cancel(said: Said, given: Mapping[str, Any]) -> str:
    """The asker orders to cancel the reminder of this number, or one that a tool has listed in this
    turn: named by any of its words, or chosen by the model for "cancel my last one"."""
    number = re.compile(rf"(?<!\w){given['number']}(?!\w)")
    line = said.listed_line(f"{given['number']}: ")
    is_asked = any(
        number.search(sentence)
        or _speaks_of(sentence, line, "cancel_reminder")
        or (line and names_nothing(words_beside_frame(sentence, "cancel_reminder")))
        for sentence in _orders(said, _DELETE, "cancel_reminder")
    )
    return "" if is_asked else _not_asked(said, f"cancel reminder {given['number']}")


def to_remember(said: Said, given: Mapping[str, Any]) -> str:
    """The asker has said what is remembered."""
    return _in_own_words(said, f"{given['key']} {given['value']}")


def to_remind(said: Said, given: Mapping[str, Any]) -> str:
    """The asker orders it or has said what they are reminded of in their own words, and has named
    the others or speaks of all who are here ("remind us")."""
    others = (nick for nick in given["who"] if nick.casefold() not in ("me", said.who.casefold()))
    unnamed = [nick for nick in others if not any(map(_mention(nick).search, said.now))]
    if unnamed and not any(map(speaks_of_all, said.now)):
        return f"{said.who} has not named {unnamed[0]}"
    # Whoever orders "remind me of what we decided" leaves the words to the model.
    return "" if any(_orders(said, _REMIND, "remind")) else _in_own_words(said, given["text"])


def to_schedule(said: Said, given: Mapping[str, Any]) -> str:
    """The asker has written the question in this message, word for word, and it orders nothing that
    needs a right, as it will be asked with theirs: cut out of its sentence it may mean something
    else."""
    question = given["question"]
    if any(orders_in(question, f"{_KICK}|{_BAN}|{_DELETE}")) or _MODE.search(question):
        return "orders are scheduled by the command `schedule` only: tell them to write it"
    # Not in a follow-up: that may be somebody else's, who has the nick by now.
    is_written = " ".join(question.casefold().split()) in " ".join(said.now[0].casefold().split())
    return "" if is_written else "use a part of what they have just written, word for word"


def to_learn(said: Said, given: Mapping[str, Any]) -> str:
    """The asker has said what is learnt: its name, when it applies, and what to do."""
    texts = (given["name"], given["when"], given["how"])
    return next(filter(None, (_in_own_words(said, text) for text in texts)), "")


def to_send(said: Said, given: Mapping[str, Any]) -> str:
    """The prompt names the channel, with its network or without."""
    # Not in a follow-up, nor because of anything that was read.
    channel = given["channel"]
    if any(_mention(name).search(said.now[0]) for name in (channel, channel.rpartition("/")[2])):
        return ""
    return f"the prompt does not name {channel}; put it into your answer instead"


def to_open(said: Said, given: Mapping[str, Any]) -> str:
    """The asker has written the address, or a tool has found it."""
    key = address_key(given["url"])
    if any(key in addresses_in(text) for text in (*said.now, *said.earlier, *said.found)):
        return ""
    return (
        f"{said.who} has not written this address. If they mean a link in the log, find its line"
        " with a tool first; else ask them to write the address"
    )


def stands_in(text: str, message: str) -> bool:
    """Return whether a text is made of the words of a message, if not in the same form or order: at
    least half of its content words are, and all but everyday ones."""
    # Also in languages that are written without blanks.
    if _letters(text) and _letters(text) in _letters(message):
        return True
    told, known = content_stems(text), content_stems(message)
    strange = told - known
    return 2 * len(strange) <= len(told) > 0 and all(rarity(each) <= _EVERYDAY for each in strange)


def orders_in(text: str, verbs: str) -> Iterator[str]:
    """Yield the sentences of a text that are orders with one of these verbs, `a|b`.

    The verb is an imperative, or follows "can you"; the sentence is not negated. Doubtful sentences
    are no orders: then the asker is only told to write one.
    """
    order = re.compile(_ORDER.format(verbs=verbs), re.IGNORECASE)
    for sentence in _SENTENCE.findall(text):
        is_request = not sentence.endswith("?") or re.search(_REQUEST, sentence, re.IGNORECASE)
        if is_request and not _NO_ORDER.match(sentence) and order.search(sentence.lstrip()):
            yield sentence


def _not_asked(said: Said, order: str) -> str:
    return (
        f"{said.who} has not asked for it in so many words; tell them to write, if they want it:"
        f" {' '.join(order.split())}"
    )


def _in_own_words(said: Said, text: str) -> str:
    if any(stands_in(text, message) for message in (*said.now, *said.earlier)):
        return ""
    return (
        f"{said.who} has not said that; use their own words in each argument, or leave it out; if"
        " they want it in other words, tell them to write those"
    )


def _speaks_of(order: str, line: str, kind: str) -> bool:
    return not content_stems(words_beside_frame(order, kind)).isdisjoint(content_stems(line))


def _orders(said: Said, verbs: str, kind: str = "") -> Iterator[str]:
    """Yield the sentences of this turn that are orders with one of these verbs, and the question if
    it was read as one of this `kind`: the verbs are English."""
    if kind and said.kind == kind and not _NO_ORDER.match(said.now[0]):
        yield said.now[0]
    for text in said.now:
        yield from orders_in(text, verbs)


def _mention(nick: str) -> re.Pattern[str]:
    """Return a pattern that matches a nick or other words, in any case, where they stand alone."""
    # Not `\b`: nicks may begin and end with brackets and other characters that are no words'.
    name = r"\s+".join(map(re.escape, nick.split()))
    return re.compile(rf"(?<![^\s,:;.!?'\"@]){name}(?![^\s,:;.!?'\"])", re.IGNORECASE)


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())
