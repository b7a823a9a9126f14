"""The prompt of a conversation: what the channel just said, and its own clean memory.

The layout is append-only, so that the engine's prefix cache holds: the system message; then log
lines and turns in order of arrival; then the newest lines and the question. Where the prompt
begins is remembered, and moves rarely and far.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from llm.client import Count
from llm.errors import ContextTooLong
from llm.irc_logs import block
from llm.log_view import Lines, LogView, Shown
from llm.message import Message
from llm.past import (
    anchors,
    asked,
    in_order,
    in_shared_order,
    length,
    newest,
    not_read_as_lines,
    others_answered,
    sent,
    size,
    too_many,
)
from llm.question import Question
from llm.sections import Section, joined, within
from storage.conversations import Conversations, Turn, Window
from storage.event import Event

_DROPPED = "[left out: too long]"
_CHARACTERS = 3  # of a token, at least, in most texts
_NEARLY = 0.87  # of the room for a prompt: another question or two
_LONG = 1_024  # tokens that are worth to be read ahead
_FEWER = 0.7  # of the events shown, at most, when they begin anew for all
_FEWER_AHEAD = 0.85  # the same, where it costs next to nothing
_STABLE, _BESIDE = 3, 6  # parts of the window: one for the sections of a kind, at most

Counter = Callable[[Sequence[Message]], Awaitable[Count]]
"""How many tokens a prompt has, and how many the model's window holds."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The `last` prompt, which the engine has read, and the `beginning` of the room's next one,
    whose lines begin at the event `start`."""

    last: list[Message]
    beginning: list[Message]
    start: int


class Context:
    """The prompt for one question in the conversation `name` of `memory`, which is with `person`
    and held in `room`: all conversations on a channel have the same, one on its own is its own.

    `stable` sections say the same to all who ask in the room, and stand behind the `system` text;
    those `beside` the question belong to it alone, and no later prompt has them.
    """

    def __init__(
        self,
        memory: Conversations,
        name: str,
        system: str,
        question: Question,
        view: LogView | None,
        *,
        room: str = "",
        person: str = "",
        stable: Sequence[Section] = (),
        beside: Sequence[Section] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._memory = memory
        self._name = name
        self._room = room or name
        self._person = person
        self._shared = self._room != name
        self._several = False  # who ask in the room, as far as its lines are shown
        self._system = system
        self._stable = list(stable)
        self._beside = list(beside)
        self._now = now
        self._question = question
        self._view = view
        self._known = Window()
        self._next_turn = 0  # the id from which on turns are shown when none is left
        self._turn_start = 0
        self._turns: list[Turn] = []
        self._shown = Shown(0, [])
        self._related: dict[int, list[Event]] = {}  # by turn; the question's own under 0
        self._nearly_full = self._long = False

    def say(self, system: str, beside: Sequence[Section], stable: Sequence[Section] = ()) -> None:
        """Begin with another system text, with these stable sections too, and put these beside
        the question."""
        self._system = system
        self._stable += stable
        self._beside += beside

    async def load(self) -> None:
        """Read the turns and the log lines that belong to the prompt."""
        self._known, turns, room = await self._memory.recall(self._name, self._room)
        self._next_turn = turns[-1].id + 1 if turns else self._known.turn_start
        self._turns = newest(turns) if too_many(turns) else turns
        self._turn_start = self._first_turn()
        if view := self._view:
            self._view = view = await view.settled()
            related = await view.related(self._question.text)
            start = max(self._known.log_start, room.log_start)
            cut = len(self._turns) < len(turns)
            await self._load_lines(view, start, related, cut=cut)

    async def _load_lines(
        self, view: LogView, start: int, related: Sequence[int], *, cut: bool
    ) -> None:
        """The newest lines, and those from further back: what each turn was shown, and what the
        question needs beside all that is shown already, which is what is `related` to it. To one
        who begins a conversation also belongs what they said last, however long ago.

        In a room with others the newest begin with the same line for all, unless this conversation
        had no place for so many. By oneself they begin anew when turns were `cut`, and turns when
        lines do: what is left of the prompt is then one piece of the one before.
        """
        as_turns: set[int] = set() if self._shared else anchors(self._turns)
        before = {event for turn in self._turns for event in turn.related}
        own = self._shared or not self._turns
        lines = await view.lines(start, as_turns, before.union(related), own=own)
        shown = lines.newest
        if cut and not self._others(shown):
            shown = await view.newest(0, as_turns)
        await self._show(shown, moved=shown.start > start)
        self._relate(lines, related)

    def _others(self, shown: Shown) -> int:
        """Up to which event others in the room were answered; 0 when nobody was."""
        view = self._live()
        return others_answered(shown, view.speaker) if view and self._shared else 0

    async def _show(self, shown: Shown, *, moved: bool) -> None:
        """Show these lines, which begin elsewhere than before if they have `moved`."""
        others = self._others(shown)
        self._several = others > 0
        if moved and self._live():
            if not others:
                self._turns = newest(self._turns, shown.start)
                self._turn_start = self._first_turn()
            if self._shared:
                await self._memory.move_window(self._room, Window(shown.start))
        if others:
            self._turns = not_read_as_lines(self._turns, shown.start)
        self._shown = shown.without(anchors(self._turns))

    def _relate(self, lines: Lines, related: Sequence[int]) -> None:
        """Take from `lines` those from further back that are shown nowhere else."""
        found = {event.id: event for event in lines.named}
        turns = [] if self._several else self._turns  # theirs would be read anew each time
        for turn in turns:
            self._related[turn.id] = [found[event] for event in turn.related if event in found]
        as_turns = anchors(self._turns)
        shown = as_turns | {event.id for event in self._shown.events}
        shown.update(event for turn in turns for event in turn.related)
        fresh = {event: found[event] for event in related if event in found}
        if not self._turns:
            fresh |= {event.id: event for event in lines.own}
        beside = [fresh[event] for event in sorted(fresh) if event not in shown]
        self._related[0] = [event for event in beside if event.reply_to not in as_turns]

    async def fit(self, steps: Sequence[Message], count: Counter, reserve: int) -> list[Message]:
        """The messages, `steps` of the run included, with `reserve` tokens left for the answer.

        Sections are cut to their share of the window. When the messages are still too many, the
        past is left out down to half of it, then what is beside the question, then the results of
        the oldest tools, then the stable sections. Raises ContextTooLong when the rest is still too
        much.
        """
        kept = list(steps)
        messages = self._messages(kept)
        counted = await count(messages)
        if self._cut_sections(counted.window * _CHARACTERS):
            messages = self._messages(kept)
            counted = await count(messages)
        room = counted.window - reserve
        self._nearly_full, self._long = counted.tokens > _NEARLY * room, counted.tokens > _LONG
        if counted.tokens > room and not steps and await self._begun_anew():
            messages = self._messages(kept)
            counted = await count(messages)
        goal = room if counted.tokens <= room else room // 2
        while counted.tokens > goal and self._has_past():
            await self._leave_out(sum(map(length, messages)) * (1 - goal / counted.tokens))
            messages = self._messages(kept)
            counted = await count(messages)
        while counted.tokens > room and (
            _leave_out_last(self._beside)
            or _leave_out_result(kept)
            or _leave_out_last(self._stable)
        ):
            messages = self._messages(kept)
            counted = await count(messages)
        if counted.tokens > room:
            raise ContextTooLong(f"{counted.tokens} tokens, room for {room}")
        return messages

    async def remember(self, messages: Sequence[Message]) -> None:
        """Keep the question and what came of it, and where the prompt begins."""
        live = self._live()
        turn = Turn(
            await live.asked() if live else 0,
            self._now(),
            (self._question.message(), *messages),
            related=tuple(event.id for event in self._related.get(0, ())),
        )
        await self._memory.add(self._name, turn, self._room, self._person)
        window = self._window()
        if window != self._known:
            await self._memory.move_window(self._name, window)

    async def ahead(self) -> Ahead | None:
        """What to read before the next question in the room, if the lines had better begin anew:
        when it was read, `begin` there. While the engine has what remains of them, that costs next
        to nothing, and nobody waits for it."""
        view = self._live()
        if view is None or not self._several or not self._long:
            return None
        if not self._nearly_full and not view.has_enough(self._shown):
            return None
        shown = await view.newest(0, ())
        if len(shown.events) > _FEWER_AHEAD * len(self._shown.events):
            return None
        beginning = [self._system_message(), {"role": "user", "content": block(shown.events)}]
        return Ahead(self._messages([]), beginning, shown.start)

    async def begin(self, ahead: Ahead) -> None:
        """Let the lines of the room begin where they were read."""
        await self._memory.move_window(self._room, Window(ahead.start))

    def _live(self) -> LogView | None:
        """The view, when it goes on from one question to the next and holds the questions."""
        return self._view if self._view and self._view.since is None else None

    def _window(self) -> Window:
        log_start = self._shown.start if self._live() else self._known.log_start
        return Window(log_start, self._turn_start)

    def _first_turn(self) -> int:
        return self._turns[0].id if self._turns else self._next_turn

    def _has_past(self) -> bool:
        return bool(self._turns or self._shown.events or self._related.get(0))

    def _past(self) -> list[Event | Turn]:
        if self._several:
            return in_shared_order(self._shown, self._turns)
        return in_order(self._shown.events, self._turns)

    def _system_message(self) -> Message:
        system = "\n\n".join(filter(None, (self._system, joined(self._stable))))
        return {"role": "system", "content": system}

    def _messages(self, steps: Sequence[Message]) -> list[Message]:
        messages = [self._system_message()]
        lines: list[Event] = []
        for item in self._past():
            if isinstance(item, Event):
                lines.append(item)
            else:
                question = asked(item.messages[0], lines, self._related.get(item.id, ()))
                messages += [question, *map(sent, item.messages[1:])]
                lines = []
        question = asked(
            self._question.message(), lines, self._related.get(0, ()), joined(self._beside)
        )
        return [*messages, question, *map(sent, steps)]

    def _cut_sections(self, window: int) -> bool:
        """Give the sections their share of a window of so many characters; whether that cut any."""
        stable = within(self._stable, window // _STABLE)
        beside = within(self._beside, window // _BESIDE)
        cut = (stable, beside) != (self._stable, self._beside)
        self._stable, self._beside = stable, beside
        return cut

    async def _begun_anew(self) -> bool:
        """Let the lines begin anew for all in the room, if that makes them far fewer."""
        view = self._live()
        if view is None or not self._shared:
            return False
        shown = await view.newest(0, ())
        if len(shown.events) > _FEWER * len(self._shown.events):
            return False
        await self._show(shown, moved=True)
        return True

    async def _leave_out(self, characters: float) -> None:
        """Leave out the oldest of the past, of so many characters or a little more."""
        self._related.pop(0, None)  # the furthest back of all
        past = in_order(self._shown.events, self._turns)
        while past and characters > 0:
            characters -= size(past.pop(0))
        turns = [item for item in past if isinstance(item, Turn)]
        if len(turns) < len(self._turns):
            self._turns = turns
            self._turn_start = self._first_turn()
        events = [item for item in past if isinstance(item, Event)]
        live = self._live()
        if live is None:
            self._shown = Shown(self._shown.start, events)
        else:
            start = events[0].id if events else live.anchor
            # Questions and answers that are shown as turns no longer are log lines now.
            self._shown = (await live.newest(start, ())).without(anchors(turns))


def _leave_out_last(sections: list[Section]) -> bool:
    """Leave out the last section, if there is one."""
    return bool(sections) and bool(sections.pop())


def _leave_out_result(steps: list[Message]) -> bool:
    """Replace the oldest tool result that is still whole."""
    for index, step in enumerate(steps):
        if step["role"] == "tool" and step["content"] != _DROPPED:
            steps[index] = step | {"content": _DROPPED}
            return True
    return False
