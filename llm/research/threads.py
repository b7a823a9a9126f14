"""Threads of the log: the lines of a conversation around a line that a search has found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain, zip_longest

from llm.retrieval import Retrieval
from storage.chat_log.event import SPOKEN, Event, Scope
from storage.log import Query
from storage.passages.passages import PEOPLE, LineFilter, find_mentions
from storage.passages.replies import addressee
from storage.passages.words import asks

_FOUND = 8  # lines of a search that threads are made of, by each way to search
_AROUND = 60  # lines before and after a line in which its thread is looked for
_TALK = timedelta(hours=1)  # the same in time
_QUIET = timedelta(minutes=10)  # within which all lines of a quiet channel belong together
_FEW_PEOPLE = 3
_MAX_LINES = 12  # lines of a thread, those next to the line that was found


@dataclass(frozen=True, slots=True)
class LogReader:
    """Searches `within` a part of the log, by words and by meaning."""

    retrieval: Retrieval
    within: Query
    line_filter: LineFilter = PEOPLE

    @classmethod
    def of_people(
        cls,
        retrieval: Retrieval,
        scope: Scope,
        *,
        before: int,
        prefix: str,
        nicks: Collection[str],
    ) -> LogReader:
        """Return the reader of what people have said in a scope `before` an event id (0: until
        now), without commands and what was said to us."""
        within = Query(scope=scope, before_id=before or None)
        return cls(retrieval, within, LineFilter(prefix=prefix, nicks=nicks))

    async def threads(self, searches: Iterable[str], most: int) -> list[tuple[Event, ...]]:
        """Return the threads that several searches find, the best first, at most `most`.

        Nobody who has opted out is among them. Raises Unavailable.
        """
        found: list[list[Event]] = []
        within = replace(self.within, limit=_FOUND)
        for text in searches:
            answers = await self.retrieval.find(text, within, line_filter=self.line_filter)
            words = await self.retrieval.log.read(find_mentions, text, within, self.line_filter)
            found.append([each.event for each in answers.passages if each.is_related])
            found.append([each.event for each in words.found.items if each.has_all])
        threads: list[tuple[Event, ...]] = []
        known: set[int] = set()
        # One of each search in turn, so that none is crowded out by another.
        for event in filter(None, chain.from_iterable(zip_longest(*found))):
            if event.id not in known and len(threads) < most:
                lines = [each for each in await self.thread(event) if each.id not in known]
                known.update(each.id for each in lines)
                threads.append(tuple(lines))
        return threads

    async def thread(self, found: Event) -> Sequence[Event]:
        """Return a line with those of its conversation before and after it, in order of time."""
        log = self.retrieval.log
        here = replace(
            self.within,
            network=found.network,
            channel=found.channel,
            types=SPOKEN,
            own=False,
            limit=_AROUND,
        )
        before = await log.find(replace(here, before_id=found.id, since=found.time - _TALK))
        after = await log.find(
            replace(here, after_id=found.id, until=found.time + _TALK), newest=False
        )
        around = [
            each
            for each in await log.shown_to_model([*before, *after])
            if not self.line_filter.leaves_out(each)
        ]
        nicks = {each.nick.lower() for each in (*around, found)}

        def called(event: Event) -> str | None:
            nick = addressee(event.text)
            return nick if nick in nicks else None

        # The conversation is about the question of one person, whom the others address. To what
        # nobody is addressed is a reply to the last question, unless the speaker has one, too.
        speaker, other = found.nick.lower(), called(found)
        asked = [each.nick.lower() for each in (*around, found) if asks(each.text)]
        asked_before = [e.nick.lower() for e in around if e.id < found.id and asks(e.text)]
        owner = other or speaker
        if asks(found.text):
            owner = speaker
        elif other is None and speaker not in asked and asked_before:
            owner = asked_before[-1]

        def belongs(event: Event) -> bool:
            if len(nicks) <= _FEW_PEOPLE:
                return abs(event.time - found.time) < _QUIET
            nick, to = event.nick.lower(), called(event)
            return to == owner or (nick == owner and to in (None, speaker, other))

        lines = [found, *filter(belongs, around)]
        lines.sort(key=lambda each: abs(each.id - found.id))
        return sorted(lines[:_MAX_LINES], key=lambda each: each.id)
