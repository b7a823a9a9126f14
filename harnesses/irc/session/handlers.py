"""Received messages: the handler of each command, and those of talk, batches and errors."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta

import structlog

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.message import ACCEPTED, Message, Receipt, ReceiptStatus, is_nick
from harnesses.irc.session import channels, nick, registration
from harnesses.irc.session.session import (
    MAX_AHEAD,
    MULTILINE,
    Batch,
    Handlers,
    Session,
    tagged_time,
)
from terrarium import __version__

log = structlog.get_logger()

HISTORY_BATCHES = frozenset({"chathistory", "playback", "znc.in/playback"})
"""Types of batches that contain history."""

CONCAT = "draft/multiline-concat"
"""The tag of a line that continues the previous one without a line break."""

MAX_LINES, MAX_CHARACTERS = 100, 64 * 1024
"""Limits of one multiline message (https://ircv3.net/specs/extensions/multiline), which is a batch
with one PRIVMSG or NOTICE per line. Lines beyond them are passed on as single messages."""

MAX_OPEN = 20
"""Maximum number of open multiline batches; it bounds the memory that a server can make us use."""

BIP_SOURCE = "bip@b.i.p"
"""The `user@host` under which the bouncer bip replays its backlog."""

CLOCK_SKEW = timedelta(seconds=1)
"""Tolerated clock skew between the servers of a network."""

CTCP_INTERVAL = timedelta(seconds=2)
"""Minimum time between two CTCP replies to one person; queries in between are not answered."""

MAX_CTCP_REPLIES, CTCP_WINDOW = 5, timedelta(seconds=10)
"""Maximum number of CTCP replies to all people together, and the time window it applies to. A flood
of queries would otherwise fill our paced send queue and delay everything else."""

_TALK = ("PRIVMSG", "NOTICE")
_UNSENDABLE = str.maketrans("", "", "\0\r\n\x01")

# Later entries override earlier ones: 437 is about a nick or a channel, and the handler in
# `registration` passes those about channels on to `channels`.
HANDLERS = Handlers(channels.HANDLERS | registration.HANDLERS | nick.HANDLERS)


def receive(session: Session, message: Message) -> list[IrcEvent]:
    """Process a received message; return the resulting events, in order.

    The lines of an open multiline batch are held back until its end.
    """
    batch = session.batches.get(message.tags.get("batch", ""))
    if batch is None or batch.opening is None or not _continues(batch.opening, batch, message):
        return _handle(session, message)
    batch.lines.append(message)
    characters = sum(len(line.param(1)) for line in batch.lines)
    if len(batch.lines) < MAX_LINES and characters < MAX_CHARACTERS:
        return []
    # A full message is delivered as it is; further lines of its batch are single messages.
    return _handle(session, _take_whole(batch))


def _continues(opening: Message, batch: Batch, message: Message) -> bool:
    """Return whether a line of a multiline batch is part of its message."""
    # All lines must have the same command, source and target, so that no line is attributed to
    # another sender. CTCP is left to be handled as a message by itself.
    first = batch.lines[0] if batch.lines else message
    return (
        message.command in _TALK
        and not message.param(1).startswith("\x01")
        and message.param(0) == opening.param(2)
        and (message.command, message.source) == (first.command, first.source)
    )


def _take_whole(batch: Batch) -> Message:
    """Return the message of the lines of a multiline batch, which takes no further ones."""
    opening, batch.opening = batch.opening, None
    first, *others = batch.lines
    batch.lines = []
    # CONCAT marks what the sender had to split, as it was too long for one IRC line.
    text = first.param(1) + "".join(
        ("" if CONCAT in line.tags else "\n") + line.param(1) for line in others
    )
    # Tags of the batch (time, msgid) override those of its first line.
    tags = {name: value for name, value in first.tags.items() if name not in ("batch", CONCAT)}
    tags |= opening.tags if opening else {}
    return Message(first.command, (first.param(0), text), first.source, tags)


def _handle(session: Session, message: Message) -> list[IrcEvent]:
    # labeled-response: a response of one line carries the label; one of several lines is a
    # batch, and the label is on the line that opens it.
    is_labelled = session.batch_type(message) == "labeled-response"
    if "label" in message.tags:
        is_error = message.command == "FAIL" or "400" <= message.command <= "999"
        receipt = Receipt(ReceiptStatus.REFUSED, message.param(-1)) if is_error else ACCEPTED
        is_labelled |= session.settle(message.tags["label"], receipt)
    if is_labelled and message.command in _TALK:
        return []  # an echo: the sender of the line gets a receipt instead of an event
    # History has no handler: an old JOIN or QUIT must not change the roster, and an old request
    # must not be answered again.
    handler = HANDLERS.get(message.command)
    if message.command != "BATCH" and _is_past(session, message):
        handler = _replay
    events = (handler(session, message) if handler else None) or []
    if not session.uninvited:
        return events
    # A channel that we were forced into has no events; our own PART is the last that it causes.
    fold, uninvited = session.fold, set(session.uninvited)
    session.uninvited -= {fold(e.channel or "") for e in events if e.own and e.type == "PART"}
    return [e for e in events if e.channel is None or fold(e.channel) not in uninvited]


def _is_past(session: Session, message: Message) -> bool:
    """Return whether `message` is replayed history and not a live message."""
    # Servers and bouncers replay history in a batch, or as plain lines whose server-time is before
    # our JOIN. The bouncer bip adds no time, but is itself the source of the lines.
    from_bip = str(message.source).endswith(f"!{BIP_SOURCE}")
    if from_bip or session.batch_type(message) in HISTORY_BATCHES:
        return True
    if message.command not in _TALK:
        return False
    channel = session.roster.channel(session.isupport.channel_of(message.param(0)) or "")
    since, time = channel.joined if channel else None, tagged_time(message)
    if channel and since and time:
        if since - time > CLOCK_SKEW:
            return True
        # The first live line ends the replay. Later ones are live even if the server's clock is set
        # back before our JOIN.
        channel.joined = None
    return False


def _replay(session: Session, message: Message) -> list[IrcEvent]:
    """Return the event of a replayed message, which the log may lack.

    Only messages and topics with a plausible time yield one: without a time they cannot be compared
    with the log.
    """
    time, target, text = tagged_time(message), message.param(0), message.param(1)
    if time is None or time > session.now() + MAX_AHEAD:
        return []
    kind: EventType = "TOPIC"
    if message.command in _TALK:
        kind, text, query = _said(message)
        if query is not None:
            return []
        session.replayed.append((session.fold(target), text, time))
    elif message.command != "TOPIC":
        return []
    event = session.event(kind, message, session.isupport.channel_of(target), target, text)
    if event.own and event.channel is None:
        return []
    # The tag's own time is kept even if it is more than MAX_BEHIND old: here it is expected to be.
    return [replace(event, time=time, batch_type=event.batch_type or "playback")]


def _said(message: Message) -> tuple[EventType, str, str | None]:
    """Return the kind and the text of a PRIVMSG or NOTICE.

    The third value is the word of a CTCP query or reply, whose argument is then the text, or None.
    """
    kind: EventType = "NOTICE" if message.command == "NOTICE" else "PRIVMSG"
    text = message.param(1)
    if not text.startswith("\x01"):
        return kind, text, None
    # https://modern.ircdocs.horse/ctcp: the final \x01 may be missing, for instance if the server
    # has truncated the line.
    word, _, rest = text.strip("\x01").partition(" ")
    return ("ACTION", rest, None) if word.upper() == "ACTION" else (kind, rest, word.upper())


@HANDLERS.on(*_TALK)
def _talk(session: Session, message: Message) -> list[IrcEvent]:
    kind, text, query = _said(message)
    if query is not None:
        _answer_ctcp(session, message, query, text)
        return []
    if not session.registered:
        return []  # server notices such as "*** Looking up your hostname"
    target = message.param(0)
    event = session.event(kind, message, session.isupport.channel_of(target), target, text)
    if event.own and session.fold(target) == "nickserv":
        return []  # an echo of a message to services may contain a password
    return [event]


@HANDLERS.on("REDACT")
def _redact(session: Session, message: Message) -> list[IrcEvent]:
    """Handle `REDACT target msgid :reason` (https://ircv3.net/specs/extensions/message-redaction)."""
    target, msgid = message.param(0), message.param(1)
    return [session.event("REDACT", message, session.isupport.channel_of(target), target, msgid)]


def _answer_ctcp(session: Session, message: Message, query: str, argument: str) -> None:
    # A CTCP query is a PRIVMSG and its reply a NOTICE. A reply is never answered, as two clients
    # could then answer each other for ever.
    source = message.source
    if message.command == "NOTICE" or not source or session.batch_type(message):
        return
    if not is_nick(source.nick) or session.is_me(source.nick):
        return
    now, replies = session.now(), session.ctcp_replies
    answers = {
        "CLIENTINFO": "ACTION CLIENTINFO PING SOURCE TIME VERSION",
        "PING": argument,
        "SOURCE": "the Python package terrarium-irc; ask my operator for its address",
        "TIME": now.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000"),
        "VERSION": f"Terrarium {__version__}",
    }
    person = f"{source.user}@{source.host}" if source.host else source.nick
    while replies and now - replies[0][1] >= CTCP_WINDOW:
        replies.popleft()
    is_early = any(who == person and now - time < CTCP_INTERVAL for who, time in replies)
    if query in answers and len(replies) < MAX_CTCP_REPLIES and not is_early:
        replies.append((person, now))
        answer = f"{query} {answers[query]}".translate(_UNSENDABLE).strip()
        session.send("NOTICE", source.nick, f"\x01{answer}\x01")


@HANDLERS.on("BATCH")
def _batch(session: Session, message: Message) -> list[IrcEvent]:
    # https://ircv3.net/specs/extensions/batch: "+ref" opens, "-ref" closes. A batch nested in a
    # batch of history is history too, whatever its own type.
    reference, kind = message.param(0)[1:], message.param(1)
    if message.param(0).startswith("+"):
        outer = session.batch_type(message)
        batch = Batch(outer if outer in HISTORY_BATCHES else kind)
        collecting = [each for each in session.batches.values() if each.opening]
        if kind == MULTILINE and len(collecting) < MAX_OPEN:
            batch.opening = message
        session.batches[reference] = batch
        return []
    ended = session.batches.pop(reference, None)
    return _handle(session, _take_whole(ended)) if ended and ended.lines else []


@HANDLERS.on("PING")
def _ping(session: Session, message: Message) -> None:
    session.send("PONG", *message.params, urgent=True)


@HANDLERS.on("PONG")
def _pong(session: Session, message: Message) -> None:
    if answered := session.pings.pop(message.param(-1), None):
        answered()


@HANDLERS.on("ERROR")
def _error(session: Session, message: Message) -> None:
    session.error = message.param(0)


@HANDLERS.on("FAIL", "WARN", "NOTE")
def _standard_reply(session: Session, message: Message) -> None:
    # https://ircv3.net/specs/extensions/standard-replies
    words = " ".join(message.params)
    log.warning("irc.server_says", network=session.network, kind=message.command, words=words)
