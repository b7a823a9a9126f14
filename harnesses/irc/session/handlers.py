"""Received messages: talk, batches and errors, channels and what the server says about people."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, timedelta

import structlog

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.message import (
    ACCEPTED,
    Message,
    Receipt,
    ReceiptStatus,
    Source,
    is_nick,
    sanitize,
)
from harnesses.irc.session import registration
from harnesses.irc.session.session import (
    MAX_AHEAD,
    MULTILINE,
    Batch,
    Handlers,
    JoinRefusal,
    Member,
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

RETRY_FIRST, RETRY_MAX = 60.0, 1800.0
"""Seconds before a refused JOIN is tried again: the first wait and the longest."""

_NAME = re.compile(r"[#&+!][^\s,\x00-\x1f]{0,199}")

_TALK_REFUSED = ("401", "404", "407", "408", "415", "486", "494", "531", "716")
"""Numerics that normally refuse a PRIVMSG or NOTICE: no such nick, moderated or banned, too many
targets, colours, a recipient who accepts no messages from strangers."""

JOIN_REFUSED = (
    "403", "405", "407", "437", "470", "471", "473", "474", "475", "476", "477", "479", "480",
    "485", "489", "495", "500", "519", "520", "524",
)  # fmt: skip
"""Numerics that may refuse a JOIN. From 477 on servers disagree on what they mean, so people are
told the server's own words."""

_TALK = ("PRIVMSG", "NOTICE")
_UNSENDABLE = str.maketrans("", "", "\0\r\n\x01")

HANDLERS = Handlers(registration.HANDLERS)


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


@HANDLERS.on(*_TALK_REFUSED, *JOIN_REFUSED)
def _on_refused(session: Session, message: Message) -> None:
    """Handle an error numeric about a channel or a person.

    About a person, or a channel that we are in, it refuses a message; otherwise it refuses a JOIN,
    which is tried again with exponential backoff if we want to be in the channel.
    """
    # A numeric does not say which command it answers, and some, such as 407 and 477, answer both.
    name, numeric = message.param(1), message.command
    is_desired, fold = session.is_desired(name), session.fold
    is_outside = session.isupport.channel_of(name) and not session.roster.channel(name)
    if not is_outside or (numeric in _TALK_REFUSED and not is_desired):
        # Without a label such an error names only the target. The server answers lines in order, so
        # that it is about the oldest.
        for label, line in session.pending_lines.items() if "label" not in message.tags else ():
            if line.target == fold(name) and not line.is_labelled:
                session.settle(label, Receipt(ReceiptStatus.REFUSED, message.param(-1)))
                break
        return
    if not is_desired:
        return
    before = session.join_refusals.get(fold(name))
    attempts = before.attempts + 1 if before else 1
    pause = min(RETRY_FIRST * 2 ** min(attempts - 1, 10), RETRY_MAX)
    reason = sanitize(message.param(-1)).replace("\n", " ")[:200]
    # Once the longest pause is reached, retries with the same result are not logged again.
    if not before or before.numeric != numeric or pause != RETRY_MAX:
        log.warning(
            "irc.join_refused",
            network=session.network,
            channel=name,
            numeric=numeric,
            reason=reason,
            retry_in=pause,
        )
    refusal = JoinRefusal(name, numeric, reason, attempts, pause)
    session.join_refusals[fold(name)] = refusal
    session.join(name, pause)


# It overrides `_on_refused` for 437, ERR_UNAVAILRESOURCE, which is about a nick or a channel.
@HANDLERS.on("432", "433", "436", "437", "438", "447")
def _nick_refused(session: Session, message: Message) -> None:
    if session.registered and session.isupport.is_channel(message.param(1)):
        _on_refused(session, message)
    else:
        registration.on_nick_refused(session, message)


@HANDLERS.on("INVITE")
def _on_invite(session: Session, message: Message) -> list[IrcEvent]:
    """Handle `INVITE nick channel`: join a desired channel at once, whoever invites us.

    For any other channel return an event, so that the tendril decides.
    """
    name = message.param(1)
    if not session.is_me(message.param(0)) or not _NAME.fullmatch(name):
        return []  # an invitation of somebody else (invite-notify), or an invalid name
    if session.batch_type(message) or session.roster.channel(name):
        return []
    if session.is_desired(name):
        session.join(name)
        return []
    return [session.event("INVITE", message, name, message.param(0))]


@HANDLERS.on("JOIN")
def _join(session: Session, message: Message) -> list[IrcEvent]:
    source, name = message.source or Source(""), message.param(0)
    key, is_own = session.fold(name), session.is_me(source.nick)
    if is_own:
        # A forward (470) or SAJOIN puts us into a channel unasked. A bouncer has joined its
        # channels itself and announces them when we connect.
        asked = key in session.asked_channels or session.is_desired(name)
        if not (asked or session.is_bouncer):
            log.warning("irc.uninvited", network=session.network, channel=name)
            session.uninvited.add(key)
            session.send("PART", name)
            return []
        session.roster.enter(name, tagged_time(message))
        session.join_refusals.pop(key, None)
        session.uninvited.discard(key)
        session.source = source if source.host else session.source
    # https://ircv3.net/specs/extensions/extended-join adds the account as second parameter, "*" for
    # none.
    account = message.param(1).removeprefix("*") or message.tags.get("account") or None
    session.roster.add(name, Member(source.nick, source.user, source.host, account))
    # WHO says which members are bots: all of them when we join, else the new one. With message-tags
    # a newcomer's messages carry the bot tag, so no WHO is needed.
    if session.isupport.bot and (is_own or "message-tags" not in session.capabilities):
        session.send("WHO", name if is_own else source.nick, idle=True)
    if session.is_attaching and is_own:
        return []  # the bouncer has been there all along: for others we have not just joined
    return [session.event("JOIN", message, name, name)]


@HANDLERS.on("PART", "KICK")
def _leave(session: Session, message: Message) -> list[IrcEvent]:
    """Handle `PART channel :reason` and `KICK channel nick :reason`."""
    name, gone = message.param(0), message.nick
    if message.command == "KICK":
        gone = message.param(1)
        event = session.event("KICK", message, name, gone, message.param(2))
    else:
        event = session.event("PART", message, name, name, message.param(1))
    if session.is_me(gone):
        session.roster.leave(name)
        # After our own PART the channel is no longer desired, so this queues nothing.
        session.join(name, session.settings.rejoin_after)
    else:
        session.roster.remove(name, gone)
    return [event]


@HANDLERS.on("QUIT")
def _quit(session: Session, message: Message) -> list[IrcEvent]:
    events = _everywhere(session, message)
    for event in events:
        session.roster.remove(event.target, event.nick)
    registration.on_nick_free(session, message.nick)
    return events


@HANDLERS.on("NICK")
def _nick(session: Session, message: Message) -> list[IrcEvent]:
    old, new = message.nick, message.param(0)
    events = _everywhere(session, message)
    session.roster.rename(old, new)
    if session.is_me(old):  # also when an operator or services renamed us
        session.source = replace(session.source, nick=new)
        registration.on_nick_change(session)
    elif session.fold(old) != session.fold(new):
        registration.on_nick_free(session, old)
    return events


def _everywhere(session: Session, message: Message) -> list[IrcEvent]:
    """Return the events of a QUIT or NICK, which names no channel, in all shared channels.

    Must be called before the roster is updated, as that knows which channels are affected.
    """
    kind: EventType = "QUIT" if message.command == "QUIT" else "NICK"
    names = [channel.name for channel in session.roster.shared_channels(message.nick)]
    return [session.event(kind, message, name, name, message.param(0)) for name in names]


@HANDLERS.on("MODE")
def _mode(session: Session, message: Message) -> list[IrcEvent]:
    name = session.isupport.channel_of(message.param(0))
    if not name:
        return []
    fold = session.fold
    for letter, argument, on in session.isupport.mode_changes(message.params[1:]):
        if letter in session.isupport.prefix.values():
            session.roster.change_mode(name, argument, letter, on=on)
        elif letter == "k" and (argument != "*" or not on):  # servers may mask the key as "*"
            for desired in session.desired_channels:
                if fold(desired) == fold(name):
                    session.desired_channels[desired] = argument if on else ""
    return [session.event("MODE", message, name, name, " ".join(message.params[1:]))]


@HANDLERS.on("TOPIC", "332")
def _topic(session: Session, message: Message) -> list[IrcEvent]:
    """Handle TOPIC, and 332, RPL_TOPIC: `nick channel :topic`, which is no event."""
    is_news = message.command == "TOPIC"
    name, text = message.params[-2:] if len(message.params) > 1 else (message.param(0), "")
    if channel := session.roster.channel(name):
        channel.topic = text
    return [session.event("TOPIC", message, name, name, text)] if is_news else []


@HANDLERS.on("ACCOUNT")
def _account(session: Session, message: Message) -> None:
    for member in session.roster.entries(message.nick):
        member.account = message.param(0).removeprefix("*") or None


@HANDLERS.on("CHGHOST")
def _chghost(session: Session, message: Message) -> None:
    user, host = message.param(0), message.param(1)
    if session.is_me(message.nick):
        session.source = Source(session.nick, user, host)
    for member in session.roster.entries(message.nick):
        member.user, member.host = user, host


@HANDLERS.on("396")
def _own_host(session: Session, message: Message) -> None:
    # 396, RPL_VISIBLEHOST: some servers send `user@host`, most only the host.
    user, _, host = message.param(1).rpartition("@")
    session.source = Source(session.nick, user or session.source.user, host)


@HANDLERS.on("352")
def _who_reply(session: Session, message: Message) -> None:
    """Handle 352, RPL_WHOREPLY: `channel user host server nick flags :hops real name`.

    The flags of a bot contain the letter of BOT (https://ircv3.net/specs/extensions/bot-mode).
    """
    letter = session.isupport.bot
    for member in session.roster.entries(message.param(5)):
        member.user, member.host = message.param(2), message.param(3)
        member.bot = letter != "" and letter in message.param(6)


@HANDLERS.on("311", "313", "318", "330")
def _whois_reply(session: Session, message: Message) -> None:
    who = message.param(1)
    query = session.whois_queries.get(session.fold(who))
    if not query:
        return
    match message.command:
        case "311":  # RPL_WHOISUSER: `nick user host * :real name`
            query.member = Member(who, message.param(2), message.param(3))
        case "313" if query.member:  # RPL_WHOISOPERATOR
            query.member.service = True
        case "330" if query.member:  # RPL_WHOISACCOUNT: `nick account :is logged in as`
            query.member.account = message.param(2) or None
        case "318":  # RPL_ENDOFWHOIS
            _end_whois(session, session.fold(who))


@HANDLERS.on("263")
def _try_again(session: Session, message: Message) -> None:
    """Handle 263, RPL_TRYAGAIN: `command :reason`; the server has dropped the command."""
    # It does not say whose WHOIS it was. A server answers in order, so it was the oldest.
    if message.param(1).upper() == "WHOIS" and session.whois_queries:
        _end_whois(session, next(iter(session.whois_queries)))


def _end_whois(session: Session, key: str) -> None:
    query = session.whois_queries.pop(key)
    for found in query.found:
        found(query.member)


@HANDLERS.on("353", "366")
def _names_reply(session: Session, message: Message) -> None:
    if message.command == "366":
        session.roster.end_names(message.param(1))
    else:  # indexed from the end, as some servers omit the channel's symbol (`=`, `*` or `@`)
        session.roster.add_names(message.param(-2), message.param(-1))
