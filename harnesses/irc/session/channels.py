"""Channels: joining and leaving, refusals, members and what the server says about people."""

from __future__ import annotations

import re
from dataclasses import replace

import structlog

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.message import Message, Receipt, ReceiptStatus, Source, sanitize
from harnesses.irc.session import nick as nicks
from harnesses.irc.session.session import Handlers, JoinRefusal, Member, Session, tagged_time

log = structlog.get_logger()

RETRY_FIRST, RETRY_MAX = 60.0, 1800.0
"""Seconds before a refused JOIN is tried again: the first wait and the longest."""

_NAME = re.compile(r"[#&+!][^\s,\x00-\x1f]{0,199}")

_TALK = ("401", "404", "407", "408", "415", "486", "494", "531", "716")
"""Numerics that normally refuse a PRIVMSG or NOTICE: no such nick, moderated or banned, too many
targets, colours, a recipient who accepts no messages from strangers."""

JOIN_REFUSED = (
    "403", "405", "407", "437", "470", "471", "473", "474", "475", "476", "477", "479", "480",
    "485", "489", "495", "500", "519", "520", "524",
)  # fmt: skip
"""Numerics that may refuse a JOIN. From 477 on servers disagree on what they mean, so people are
told the server's own words."""

HANDLERS = Handlers()


@HANDLERS.on(*_TALK, *JOIN_REFUSED)
def on_refused(session: Session, message: Message) -> None:
    """Handle an error numeric about a channel or a person.

    About a person, or a channel that we are in, it refuses a message; otherwise it refuses a JOIN,
    which is tried again with exponential backoff if we want to be in the channel.
    """
    # A numeric does not say which command it answers, and some, such as 407 and 477, answer both.
    name, numeric = message.param(1), message.command
    is_desired, fold = session.is_desired(name), session.fold
    is_outside = session.isupport.channel_of(name) and not session.roster.channel(name)
    if not is_outside or (numeric in _TALK and not is_desired):
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


@HANDLERS.on("INVITE")
def _invited(session: Session, message: Message) -> list[IrcEvent]:
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
    nicks.on_nick_free(session, message.nick)
    return events


@HANDLERS.on("NICK")
def _nick(session: Session, message: Message) -> list[IrcEvent]:
    old, new = message.nick, message.param(0)
    events = _everywhere(session, message)
    session.roster.rename(old, new)
    if session.is_me(old):  # also when an operator or services renamed us
        session.source = replace(session.source, nick=new)
        nicks.on_nick_change(session)
    elif session.fold(old) != session.fold(new):
        nicks.on_nick_free(session, old)
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
    nick = message.param(1)
    query = session.whois_queries.get(session.fold(nick))
    if not query:
        return
    match message.command:
        case "311":  # RPL_WHOISUSER: `nick user host * :real name`
            query.member = Member(nick, message.param(2), message.param(3))
        case "313" if query.member:  # RPL_WHOISOPERATOR
            query.member.service = True
        case "330" if query.member:  # RPL_WHOISACCOUNT: `nick account :is logged in as`
            query.member.account = message.param(2) or None
        case "318":  # RPL_ENDOFWHOIS
            _end_whois(session, session.fold(nick))


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
