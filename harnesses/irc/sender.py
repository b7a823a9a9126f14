"""Sending of texts: Markdown as plain lines, line splitting, line budget, delivery, logging."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from weakref import WeakKeyDictionary, WeakValueDictionary

import structlog

from harnesses.core.commands.request import PrivateReply, Reply
from harnesses.core.text import counted
from harnesses.irc.channel_settings import LiveSettings
from harnesses.irc.protocol.errors import IrcError
from harnesses.irc.protocol.events import Talk
from harnesses.irc.protocol.message import LOST, ReceiptStatus, sanitize
from harnesses.irc.requests import IrcRequest, identity_of
from harnesses.irc.session.session import utc_now
from harnesses.irc.settings import IrcSettings
from harnesses.irc.transport.network import Network
from llm.messages.message import QuotingText
from storage.chat_log.event import Event, EventType, PendingEvent, Place
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.queues.pastes import Pastes

_log = structlog.get_logger()

# Services and other bots could take this for a command, and run it with our rights instead of those
# of the person who talked the model into it.
_COMMAND = re.compile(r"[!$%&+,.;?@\\^~-][a-zA-Z]")
_ACTION = "/me "
_SHORT_LINE = 60  # characters; "Yes." alone is no beginning of an answer
_SENTENCES = re.compile(r".*[.!?:…。！？][\"')\]]*(?=\s|$)")


# Markdown, which nothing renders on IRC.
_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)")
_HEADING = re.compile(r"#{1,6}\s+(?P<text>\S.*)")
_RULE = re.compile(r"-{3,}|\*{3,}|_{3,}|\|[|:-]+")  # also the line below the head of a table
_BOLD = re.compile(r"(?<![\w*])\*\*(?P<text>(?=[^\s*])[^*\n]*[^\s*])\*\*(?![\w*])")
_LINK = re.compile(r"!?\[(?P<text>[^\[\]\n]*)\]\((?P<url>https?://[^\s()]+)\)")
_OPEN = re.compile(r"\*\*|\[|```|~~~")


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a text: a place and, unless `nick` is empty, a person there.

    - Lines go to `recipient` and are logged in `place`. A notice to the person alone is logged in
      their private room, `personal`, where that is known. Unless `logged`, nothing is stored.
    - `answers` is the question, on its way into the log; `quotes` are the ids of the lines that the
      text repeats.
    - `about` names the question, where the person could not tell which one is answered.
    - `budget` is the most lines to send at once, `prefix` the command prefix in the place.
    """

    network: Network
    place: Place
    recipient: str
    nick: str
    answers: PendingEvent | None
    budget: int
    prefix: str
    logged: bool = True
    personal: Place | None = None
    quotes: frozenset[int] = frozenset()
    about: str = ""

    @property
    def is_direct(self) -> bool:
        """True for a private message to the person."""
        return self.recipient == self.nick

    @property
    def address(self) -> str:
        """The prefix of a reply: "nick: " on a channel, and the question if it is named."""
        nick = "" if self.is_direct or not self.nick else f"{self.nick}: "
        return f"{nick}(to: {self.about}) " if self.about else nick


LATE_AFTER = timedelta(minutes=1)
"""The delay after which an answer names its question or, after a lost connection, is marked."""

GIVEN_UP_AFTER = timedelta(minutes=30)
"""The longest that an answer waits for a lost connection; then it is dropped."""

_CLOCK_SKEW = timedelta(seconds=2)  # tolerance for a server clock that is behind ours

MAX_WAITING = 50
"""The most answers that wait for a connection at the same time, on all networks together."""


@dataclass(frozen=True, slots=True)
class OutgoingLine:
    """One line to send."""

    text: str
    action: bool = False


@dataclass(frozen=True, slots=True)
class ComposedAnswer:
    """An answer of the model to somebody: its `lines`, of which the first `opening` come before any
    code, what it says after code that it begins with (`remark`), and the Markdown `text` for its
    page; the mark of the settings is in all of them."""

    text: str
    lines: Sequence[OutgoingLine]
    opening: int
    remark: Sequence[OutgoingLine]


class MessageSender:
    """The sender of texts to channels and people, under the `live` settings.

    `settings` returns those of the tendril, which a reload replaces, `web_address` the base URL of
    pastes, None while nobody could open one. `streaming` has the replies that are begun and not
    finished.
    """

    def __init__(
        self,
        log: ChatLog,
        pastes: Pastes,
        live: LiveSettings,
        settings: Callable[[], IrcSettings],
        web_address: Callable[[], str | None],
    ) -> None:
        self._log, self.pastes, self._live = log, pastes, live
        self._settings, self._web_address = settings, web_address
        self._waiting = 0
        self.streaming: WeakKeyDictionary[object, Place] = WeakKeyDictionary()
        # Weak, so that the lock of a place lasts only while somebody holds it or waits for it.
        self._more_locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    def target(self, network: Network, place: Place) -> Target:
        """Return the target of an unasked message to a place. A private one still needs its
        `recipient`, as the name of a private room is no nick."""
        behaviour = self._live.resolve(place)
        return Target(
            network=network,
            place=place,
            recipient=place.channel,
            nick="",
            answers=None,
            budget=behaviour.line_budget,
            prefix=behaviour.command_prefix,
            logged=behaviour.logging,
        )

    def target_of(self, request: IrcRequest) -> Target:
        """Return the target of the reply to a request; the reply is logged only if the request
        is."""
        target = self.target(request.network, request.place)
        logged = target.logged and request.pending_event.event is not None
        return replace(
            target,
            recipient=request.recipient,
            nick=request.nick,
            answers=request.pending_event,
            logged=logged,
            personal=Place(request.network.name, request.who.room(request.network.fold)),
        )

    async def reply(self, request: IrcRequest, reply: Reply) -> None:
        """Send a reply to the author of a request, unless it is empty."""
        text = reply.text if isinstance(reply, PrivateReply) else reply
        if not text:
            return
        target = self.target_of(request)
        if isinstance(text, QuotingText):
            target = replace(target, quotes=text.lines)
        # To a bridged person a NOTICE would end at the relay.
        if isinstance(reply, PrivateReply) and not request.who.bridged:
            await self.notice(target, text)
            return
        lines = await self._within_budget(target, text, self.lines(target, text), 0)
        _, refusal = await self._send(target, lines)
        await self._tell_refused(target, refusal)

    def lines(self, target: Target, text: str) -> list[OutgoingLine]:
        """Split `text` into sanitized lines, the first one addressed to the person, or an action if
        it is `/me ...`."""
        clean = sanitize(text)
        network, channel = target.network, target.recipient
        first: list[OutgoingLine] = []
        if clean.startswith(_ACTION):
            deed, _, clean = clean.removeprefix(_ACTION).partition("\n")
            first = [
                OutgoingLine(line, action=True) for line in network.split(channel, deed, "ACTION")
            ]
        else:
            clean = target.address + clean
        return first + [OutgoingLine(line) for line in _split(target, clean)]

    def compose(self, target: Target, text: str, *, is_markdown: bool = True) -> ComposedAnswer:
        """Return an answer as lines for IRC, without the Markdown that a model writes, and with
        the mark in front; the address that the model itself may have put there is removed."""
        mark = target.network.settings.mark

        def lines(shown: str) -> Sequence[OutgoingLine]:
            words = strip_address(shown.strip("\n"), target.nick)
            return self.lines(target, with_mark(words, mark)) if words.strip() else ()

        whole = with_mark(strip_address(text.lstrip(), target.nick), mark)
        if not is_markdown:
            said = lines(text)
            return ComposedAnswer(whole, said, len(said), ())
        before, after = prose(text)
        opening = len(lines(before))
        remark = () if opening else lines(after)
        return ComposedAnswer(whole, lines(to_plain(text)), opening, remark)

    async def say(self, target: Target, text: str) -> bool:
        """Send `text` within the line budget; return True if the server accepted each line sent."""
        lines = await self._within_budget(target, text, self.lines(target, text), 0)
        return await self.send_lines(target, lines)

    async def send_lines(self, target: Target, lines: Sequence[OutgoingLine]) -> bool:
        """Send lines; return True if the server accepted each."""
        left, _ = await self._send(target, lines)
        return not left

    async def deliver(self, target: Target, answer: ComposedAnswer, already: int = 0) -> bool:
        """Send an answer without its first `already` lines; after a lost connection, go on once it
        is back.

        Of one beyond the line budget, only the first sentences are sent if there is a link to all
        of it. Return False when that takes too long, the server refuses a line, or the nick of a
        private target has another owner by then. Delivery is at least once: a line whose receipt
        was lost is sent again, unless the server plays it back.
        """
        # Once, before the loop: this may store a paste.
        left = await self._beginning(target, answer, already)
        clock = asyncio.get_running_loop().time
        began, since = clock(), utc_now() - _CLOCK_SKEW
        while True:
            left, refusal = await self._send(target, left)
            await self._tell_refused(target, refusal)
            if refusal is not None or not left:
                return not left
            if not await self._wait_reachable(target, began):
                _log.warning("irc.answer_dropped", network=target.network.name)
                return False
            # The server may have accepted lines whose receipt was lost with the connection.
            network, recipient = target.network, target.recipient
            while left and await network.has_replayed(recipient, left[0].text, since):
                left = left[1:]
            if not left:
                return True
            waited, first = clock() - began, left[0]
            is_marked = "(late, as I was away" in first.text
            if waited > LATE_AFTER.total_seconds() and not (first.action or is_marked):
                mark = f"(late, as I was away for {round(waited / 60)} min) "
                text = target.address + mark + first.text.removeprefix(target.address)
                left = [*map(OutgoingLine, _split(target, text)), *left[1:]]

    async def _wait_reachable(self, target: Target, began: float) -> bool:
        """Wait until a target can be written to again; return False if that takes too long, too
        many answers wait already, or the nick has another owner by then."""
        if self._waiting >= MAX_WAITING:
            return False
        network = target.network
        self._waiting += 1
        try:
            async with asyncio.timeout_at(began + GIVEN_UP_AFTER.total_seconds()):
                await network.until_reaches(target.recipient)
                if not target.is_direct:
                    return True
                # During the disconnect somebody else may have taken the nick.
                member = await network.whois(target.nick)
            return member is not None and target.personal == Place(
                network.name, identity_of(member).room(network.fold)
            )
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1

    async def _tell_refused(self, target: Target, reason: str | None) -> None:
        """Tell the person by NOTICE why the server refused the answer on the channel, if it did."""
        if reason is not None and target.nick and not target.is_direct:
            why = sanitize(reason).replace("\n", " ")[:200]
            await self.notice(target, f"I cannot answer there; the server says: {why}")

    async def _beginning(
        self, target: Target, answer: ComposedAnswer, already: int
    ) -> Sequence[OutgoingLine]:
        """Return the lines of an answer to send, without the first `already`: all of them, or the
        first sentences with a link, or where nobody could open that, those within the budget."""
        lines = answer.lines
        if len(lines) <= target.budget:
            return lines[already:]
        if not (target.logged and self._web_address()):
            return await self._within_budget(target, answer.text, lines[already:], already)
        # Sent are the first sentences before any code, or if it begins with code, those after it.
        is_short = len(lines[0].text) < _SHORT_LINE
        count = max(already, min(answer.opening, 2 if is_short and target.budget > 2 else 1))
        shown, rest = list(lines[:count]), [line.text for line in lines[count:]]
        if count > already:
            whole, left = self._whole_sentences(target, shown[-1], rest)
            shown[-1], rest = whole, [*left, *rest]
        hint = await self._keep_rest(target, sanitize(answer.text), tuple(rest))
        new = shown[already:]
        if not shown and answer.remark:
            following = [line.text for line in answer.remark[1:]]
            new = [self._whole_sentences(target, answer.remark[0], following)[0]]
        if not (shown or new):
            return [OutgoingLine(f"{target.address}{target.network.settings.mark}{hint}")]
        joined = f"{new[-1].text} {hint}" if new and not new[-1].action else ""
        if joined and len(target.network.split(target.recipient, joined)) == 1:
            return [*new[:-1], OutgoingLine(joined)]
        return [*new, OutgoingLine(hint)]

    def _whole_sentences(
        self, target: Target, line: OutgoingLine, following: Sequence[str]
    ) -> tuple[OutgoingLine, Sequence[str]]:
        """Return a line without the sentence that goes on in the `following` line, if it has others
        before that, and what was cut off."""
        words = line.text.removeprefix(target.address)
        more = f"{line.text} {following[0].split()[0]}" if following else line.text
        is_full = len(target.network.split(target.recipient, more)) > 1
        match = _SENTENCES.match(words) if is_full and not line.action else None
        if match is None or match.end() == len(words):
            return line, ()
        return OutgoingLine(target.address + match[0]), (words[match.end() :].lstrip(),)

    async def _within_budget(
        self, target: Target, text: str, lines: Sequence[OutgoingLine], already: int
    ) -> Sequence[OutgoingLine]:
        """Return the lines to send; those over the budget are replaced by a hint, and `text` is
        kept as a paste if the place is logged."""
        if already + len(lines) > target.budget:
            shown = max(target.budget - 1, 1) - already
            left = tuple(line.text for line in lines[shown:])
            hint = await self._keep_rest(target, sanitize(text), left)
            lines = [*lines[:shown], OutgoingLine(hint)]
        return lines

    async def _keep_rest(self, target: Target, text: str, left: tuple[str, ...]) -> str:
        """Store `text` as a paste with its unsent lines `left`; return the hint on how to get them.

        Where nothing is logged there is no paste: it would keep place and person for days.
        """
        more = counted(len(left), "more line")
        try:
            if target.logged:
                asked = {target.answers.id} if target.answers else set[int]()
                quotes = target.quotes | asked
                lifetime = timedelta(hours=self._settings().paste_hours)
                key = await self.pastes.add(target.place, target.nick, text, left, lifetime, quotes)
                address = self._web_address()
                return f"({more}: {target.prefix}more)" + (
                    f" {address}/paste/{key}" if address else ""
                )
        except StorageError as error:  # the person gets what can be sent all the same
            _log.error("irc.paste_not_kept", error=str(error))
        return f"({more}; not kept)"

    async def send_more(self, target: Target) -> bool:
        """Send the next lines of the newest paste of the place that has any left, that of whoever
        asks first.

        Return False if there is none. Lines that the server has not accepted stay in the paste.
        """
        # One at a time in a place: the next goes on behind the lines that are accepted by then.
        async with self._more_locks.setdefault(target.place, asyncio.Lock()):
            paste = await self.pastes.latest(target.place, target.nick)
            if paste is None:
                return False
            target = replace(target, quotes=paste.quotes)
            rest = [target.address + paste.rest[0], *paste.rest[1:]]
            lines = [piece for line in rest for piece in _split(target, line)]
            shown = lines
            if len(lines) > target.budget:
                shown = lines[: max(target.budget - 1, 1)]
            left = lines[len(shown) :]
            hint = [f"({counted(len(left), 'more line')}: {target.prefix}more)"] if left else []
            new = [*map(OutgoingLine, [*shown, *hint])]
            unsent, refusal = await self._send(target, new)
            accepted = min(len(new) - len(unsent), len(shown))
            if accepted:
                await self.pastes.save_rest(paste.id, tuple(lines[accepted:]))
            await self._tell_refused(target, refusal)
            return True

    async def notice(self, target: Target, text: str) -> None:
        """Send `text` to the person alone, by NOTICE. Clients differ in where they show one, so
        each line names the channel that it is about."""
        where = "" if target.is_direct else f"[{target.recipient}] "
        text = "\n".join(f"{where}{line}" for line in sanitize(text).split("\n"))
        try:
            sent = await target.network.say("NOTICE", target.nick, text)
        except IrcError as error:
            _log.warning("irc.not_sent", network=target.network.name, error=str(error))
            return
        # Not logged in the channel, whose readers have not seen it.
        place = target.personal or Place(target.place.network, target.nick)
        own = replace(target, place=place, quotes=frozenset())
        for line in sent:
            self._log_line(own, EventType.NOTICE, line, target.network.nick)

    async def _send(
        self, target: Target, lines: Sequence[OutgoingLine]
    ) -> tuple[Sequence[OutgoingLine], str | None]:
        """Send lines, log each that the server accepts, and stop at the first that it does not.

        Return the lines not accepted, and the reason if the server refused one.
        """
        network = target.network
        if not network.reaches(target.recipient):
            return lines, None
        try:
            texts: list[tuple[Talk, str]] = [
                ("ACTION" if line.action else "PRIVMSG", line.text) for line in lines
            ]
            sent = network.send(target.recipient, *texts, person=target.nick)
        except IrcError as error:  # nobody can be written to by that name
            _log.warning("irc.not_sent", network=network.name, error=str(error))
            return lines, str(error)
        said, receipt = 0, LOST
        try:
            for line, pieces in zip(lines, sent, strict=True):
                receipt = LOST  # also of no pieces, as without a connection
                for piece in pieces:
                    receipt = await piece.outcome()
                    if receipt.status is not ReceiptStatus.ACCEPTED:
                        break
                if receipt.status is not ReceiptStatus.ACCEPTED:
                    break
                said += 1
                # The receipt has the nick that others saw; ours may have changed since.
                kind = EventType.ACTION if line.action else EventType.PRIVMSG
                self._log_line(target, kind, line.text, receipt.nick or network.nick)
        finally:
            # Also when cancelled (`stop`): take back what is still in the send queue.
            for piece in itertools.chain(*sent[said:]):
                piece.cancel()
        if said == len(lines):
            return (), None
        if receipt.status is not ReceiptStatus.REFUSED:
            return lines[said:], None
        network.refused += 1
        _log.warning("irc.line_refused", network=network.name)
        return lines[said:], receipt.reason

    def _log_line(self, target: Target, kind: EventType, text: str, nick: str) -> None:
        if target.logged:
            event = Event(
                network=target.place.network,
                channel=target.place.channel,
                type=kind,
                time=datetime.now(UTC),
                nick=nick,
                text=text,
                own=True,
                quotes=target.quotes,
            )
            self._log.write(event, target.answers)


def strip_address(text: str, nick: str) -> str:
    """Remove the `nick:` with which a model may begin, as lines are addressed anyway."""
    return re.sub(rf"\A(?:@?{re.escape(nick)}\s*[:,]\s*)+(?=\S)", "", text, flags=re.IGNORECASE)


def with_mark(text: str, mark: str) -> str:
    """Return an answer of the model with `mark` in front, exactly once, and behind any `/me`."""
    if not mark or not text:
        return text
    deed = text.startswith(_ACTION)
    plain = text.removeprefix(_ACTION).removeprefix(mark).removeprefix(mark.rstrip()).lstrip()
    if plain.startswith("```"):  # a fence is one only at the beginning of a line
        plain = f"\n{plain}"
    return f"{_ACTION if deed else ''}{mark}{plain}"


def _split(target: Target, text: str) -> list[str]:
    """Split a text into lines, none of which on a channel begins like a command: services or
    another bot could take it for one."""
    lines = []
    for line in target.network.split(target.recipient, text):
        if target.is_direct or not _COMMAND.match(line):
            lines.append(line)
        else:  # with a blank in front its end may move to another line
            first, *others = target.network.split(target.recipient, f" {line}")
            lines += [first, *(piece for each in others for piece in _split(target, each))]
    return lines


def plain_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a text as they are shown on IRC, and whether each is code.

    Bold, headings and links are written out, fences and rules left out. `*this*` and backticks
    stay: people on IRC write them too, and they say where a command ends. Code stays as it is.
    """

    def write_out(match: re.Match[str]) -> str:
        text, url = match["text"], match["url"]
        return url if text in ("", url) else f"{text} ({url})"

    fence = ""
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if match and (
            not fence or (match["fence"].startswith(fence) and not match["info"].strip())
        ):
            fence = "" if fence else match["fence"]
        elif fence:
            yield line, True
        elif not _RULE.fullmatch("".join(line.split())):
            heading = _HEADING.fullmatch(line)
            shown = _LINK.sub(write_out, heading["text"] if heading else line)
            yield _BOLD.sub(r"\g<text>", shown), False


def to_plain(text: str) -> str:
    """Return a text as it is shown on IRC."""
    return "\n".join(line for line, _ in plain_lines(text))


def prose(text: str) -> tuple[str, str]:
    """Return the part of a text before the first code, and that after it up to the next, as they
    are shown on IRC."""
    parts = [
        (is_code, "\n".join(line for line, _ in group))
        for is_code, group in groupby(plain_lines(text), key=itemgetter(1))
    ]
    before = parts.pop(0)[1] if parts and not parts[0][0] else ""
    return before, parts[1][1] if parts[1:] else ""


def may_change(line: str) -> bool:
    """Return whether more text may change how a line, the beginning of a longer one, is shown."""
    return _OPEN.search(line) is not None
