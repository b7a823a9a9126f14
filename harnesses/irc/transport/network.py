"""One IRC network, across all connections to it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import structlog

from harnesses.irc.ircd.server import NAME as EMBEDDED
from harnesses.irc.protocol.errors import InvalidMessage, IrcError, UntrustedCertificate
from harnesses.irc.protocol.events import IrcEvent, Talk
from harnesses.irc.protocol.message import (
    ACCEPTED,
    LOST,
    Casemap,
    Message,
    Receipt,
    ReceiptStatus,
    budget,
    split,
    talk,
)
from harnesses.irc.session.registration import claim_nick, login_problem
from harnesses.irc.session.session import Member, Roster, Session, utc_now
from harnesses.irc.session.sts import Sts, StsPolicies
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.connection import IrcConnection, PluginHost, Sent, explain
from terrarium.clock import Backoff
from terrarium.loopback import is_loopback

log = structlog.get_logger()

RECONNECT_DELAYS = 2.0, 300.0
"""Seconds before the first reconnect, and the longest wait between attempts."""

SILENCE_LIMIT = 90.0
"""Seconds of silence before a PING is sent; after as many again the connection is dropped."""

QUIT_TIMEOUT, WHOIS_TIMEOUT, LAG_TIMEOUT, ECHO_TIMEOUT = 2.0, 10.0, 5.0, 10.0
"""Seconds that the server has to close the connection after our QUIT, to answer a WHOIS, to answer
the PING of a lag measurement, and to send the receipt of a line before it is asked by a PING."""

FENCE_INTERVAL = 2
"""Number of texts after which a PING is sent to a server that does not echo our lines."""

UNWELCOME_WAIT = 60.0
"""Minimum seconds before a reconnect after the server has called us banned or too fast."""

_UNWELCOME = re.compile(r"throttl|\bban|[a-z]-?lined|too (many|fast)|trying to reconnect", re.I)


class Network:
    """A network to which we stay connected: it reconnects, reports events and sends messages.

    Our own messages are not events: `send` and `say` return the lines and their receipts.
    `session` is the state of the connection, or of the last one while there is none; `roster` has
    the channels that we are in and their members.
    `fold` folds a nick or channel name per CASEMAPPING, so that equal names are equal strings.
    `settings` are those that the next connection uses, `server` is the host name or address.
    `connected` is set while we are registered, `all_joined` while we are in all desired channels.
    `left` is the time of the last received line of the previous connection.
    For metrics are counted: `lines` of others, lines of ours that were `refused`, and `losses` of
    established connections.
    `plugins` creates the plugin host, `policies` stores the servers' STS policies.
    Raises IrcError if the settings name no server.
    """

    def __init__(
        self,
        name: str,
        settings: NetworkSettings,
        *,
        plugins: Callable[[Network], PluginHost] | None = None,
        policies: StsPolicies | None = None,
        backoff: Backoff | None = None,
        silence: float = SILENCE_LIMIT,
    ) -> None:
        if settings.server is None:
            raise IrcError(f"the network {name} has no server; set its key `server`")
        self.name, self.settings, self.server = name, settings, settings.server
        self.connected, self.all_joined = asyncio.Event(), asyncio.Event()
        self.left: datetime | None = None
        self.lines = self.refused = self.losses = 0
        self._make_plugins = plugins
        self._plugins: PluginHost | None = None
        self._policies = policies or StsPolicies()
        self._backoff = backoff or Backoff(*RECONNECT_DELAYS, jitter=random.random)
        self._silence = silence
        self._wanted = dict(name_and_key(channel) for channel in settings.channels)
        self.roster = Roster()
        self.fold: Casemap = self.roster.fold
        self.session = Session(name, settings, self._wanted, roster=self.roster)
        self._connection: IrcConnection | None = None
        self._port = settings.port
        self._noted: Sts | None = None
        self._closing = asyncio.Event()
        self._rechecked = asyncio.Event()
        self._failure = "it is connecting"
        self._may_speak: Callable[[], bool] = lambda: True
        self._typing: Sent | None = None

    def __repr__(self) -> str:
        state = "connected" if self.connected.is_set() else "not connected"
        return f"<Network {self.name} as {self.nick}, {state}>"

    @property
    def nick(self) -> str:
        """Our current nick."""
        return self.session.nick

    def is_channel(self, name: str) -> bool:
        """Return whether `name` is a channel name on this network (CHANTYPES)."""
        return self.session.isupport.is_channel(name)

    async def whois(self, nick: str) -> Member | None:
        """Ask the server who has `nick`; return None if nobody has it or the server is too slow."""
        if not self._connection or not self.connected.is_set():
            return None
        answer: asyncio.Future[Member | None] = asyncio.get_running_loop().create_future()

        def found(member: Member | None) -> None:
            if not answer.done():
                answer.set_result(member)

        self.send_line(self.session.whois(nick, found).render())
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(answer, WHOIS_TIMEOUT)
        return None

    @property
    def is_embedded(self) -> bool:
        """True if the server is the one that `terrarium up` brings along, and no bouncer or tunnel
        to another one."""
        is_local = is_loopback(self.server) and not self.settings.socks5
        return is_local and self.session.server_name == EMBEDDED and not self.session.is_bouncer

    @property
    def admins(self) -> tuple[str, ...]:
        """Accounts and masks of the admins; on the embedded server, unless the settings name some,
        everybody, as all of them are on this machine."""
        return self.settings.admins or (("*!*@127.0.0.1", "*!*@0::1") if self.is_embedded else ())

    def is_operator(self, channel: str) -> bool:
        """Return whether we are an operator of `channel`."""
        return self.roster.is_operator(channel, self.nick)

    def reaches(self, target: str) -> bool:
        """Return whether a message can be sent to `target` now.

        To a channel, or its members with a status (`@#c`), we must be in the channel; to a person
        we must be connected.
        """
        if not self._may_speak():
            return False
        channel = self.session.isupport.channel_of(target)
        if channel is None:
            return self.connected.is_set()
        return self.roster.channel(channel) is not None

    async def until_reaches(self, target: str) -> None:
        """Wait until a message can be sent to `target`."""
        while not self.reaches(target):
            self._rechecked.clear()
            await self._rechecked.wait()

    @property
    def problem(self) -> str:
        """The reason why we are not connected or not logged in to services, for people; else ""."""
        return login_problem(self.session) if self.connected.is_set() else self._failure

    @property
    def joins_answered(self) -> bool:
        """True if we are connected and every JOIN has been answered.

        We must be in at least one of our channels, if any are configured; each of the others has
        refused us or removed us again.
        """
        refused = {self.fold(refusal.channel) for refusal in self.session.refusals}
        is_answered = all(
            self.roster.has_visited(name) or self.fold(name) in refused for name in self._wanted
        )
        is_there = bool(self.roster.channels) or not self._wanted
        return self.connected.is_set() and is_there and is_answered

    def claim_nick(self, settings: NetworkSettings) -> None:
        """Request the nick of `settings` now, and use them from the next connection on."""
        self.settings = settings
        if self._connection:
            claim_nick(self.session, settings)
            self._connection.flush()

    def restrict(self, may_speak: Callable[[], bool]) -> None:
        """Send no messages while `may_speak()` is false; `recheck` when its result has changed."""
        self._may_speak = may_speak

    def recheck(self) -> None:
        """Make all pending `until_reaches` check their target again."""
        self._rechecked.set()

    async def lag(self) -> float | None:
        """Measure the seconds until the server answers a PING; None after `LAG_TIMEOUT` seconds."""
        with contextlib.suppress(TimeoutError):
            if self._connection:
                return await asyncio.wait_for(self._connection.lag(), LAG_TIMEOUT)
        return None

    async def has_replayed(self, target: str, text: str, since: datetime) -> bool:
        """Return whether the server has replayed a line of ours, sent `since` then: whether it was
        accepted, although its receipt was lost with the connection."""
        # The server answers in order, so after a PONG the replay for our JOINs has arrived.
        await self.lag()
        place = self.fold(target)
        return any(
            (place, text) == (where, said) and time >= since
            for where, said, time in self.session.replayed
        )

    async def run(self, on_event: Callable[[IrcEvent], None]) -> None:
        """Stay connected until `close` or `quit`.

        `on_event` is called synchronously, in the order of arrival; an exception that it raises
        propagates out of this call.
        """
        self._plugins = self._make_plugins(self) if self._make_plugins else None
        while not self._closing.is_set():
            # STS: a stored policy replaces the configured port and demands TLS.
            insisted = None if self.settings.tls else self._policies.port(self.server)
            self._port = insisted or self.settings.port
            encrypted = self.settings.tls or insisted is not None
            self._noted = None
            self.session = Session(
                self.name, self.settings, self._wanted, encrypted=encrypted, roster=self.roster
            )
            self._connection = IrcConnection(
                self.session,
                on_event=on_event,
                changed=self._on_change,
                may_speak=lambda: self._may_speak(),  # `restrict` may replace it meanwhile
                plugins=self._plugins,
                silence=self._silence,
            )
            try:
                await self._connection.open(self.server, self._port)
                self._backoff.mark_started()
                fault = await self._connection.wait_closed()
                # A server with another certificate may be an impostor; it must not extend the
                # policy.
                if self.session.encrypted and not isinstance(fault, UntrustedCertificate):
                    self._policies.renew(self.server)
                if fault and not isinstance(fault, OSError):
                    raise fault  # no network error: `on_event` has raised it
                if self.session.upgrade:
                    log.info("irc.sts_upgrade", network=self.name, port=self.session.upgrade)
                elif not self._closing.is_set():
                    why = self.session.error or str(fault or "the server closed the connection")
                    self._failure = f"disconnected: {why}"
                    log.warning("irc.disconnected", network=self.name, error=why)
            except (OSError, UnicodeError) as error:
                self._failure = explain(error, self._port, encrypted)
                log.warning("irc.connect_failed", network=self.name, error=self._failure)
            finally:
                if self.connected.is_set():
                    self.losses += 1
                    silent = timedelta(seconds=self._connection.silent_for())
                    self.left = utc_now() - silent
                self._connection.close()
                self._connection = None
                self.connected.clear()
                self.all_joined.clear()
            await self._wait_backoff()

    async def say(self, kind: Talk, target: str, text: str) -> list[str]:
        """Send `text`; return the lines that the server accepted, none without a connection.

        Cancellation withdraws the lines that are still queued. Raises InvalidMessage for an invalid
        `target`.
        """
        (lines,) = self.send(target, (kind, text))
        try:
            receipts = [(line.text, await line.outcome()) for line in lines]
        except asyncio.CancelledError:
            for line in lines:
                line.cancel()
            raise
        return [line for line, receipt in receipts if receipt.status is ReceiptStatus.ACCEPTED]

    def send(self, target: str, *texts: tuple[Talk, str], person: str = "") -> list[list[SentLine]]:
        """Queue texts, each with its kind; return the lines of each text, in order.

        What is said to one `person`, or without one to a target, does not overtake itself; what is
        said to others takes turns with it, each time with all texts of a call.
        The lists are empty without a connection. Raises InvalidMessage for an invalid `target`.
        """
        Message("PRIVMSG", (target, "")).render()  # raises for a bad target, also when offline
        connection = self._connection
        if not connection or not self.connected.is_set() or not self._may_speak():
            return [[] for _ in texts]
        sent: list[list[SentLine]] = []
        session, labels, turn = self.session, list[str](), object()
        sender = self.fold(person or target)
        for number, (kind, text) in enumerate(texts, 1):
            lines = []
            for piece in self.split(target, text, kind):
                labels.append(session.new_label())
                line = replace(talk(kind, target, piece), tags=session.label_tags(labels[-1]))
                receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
                # Tracked once it is written: what a server refuses without a label is the oldest
                # line that it has got.
                track = functools.partial(session.track, target, receipt.set_result, labels[-1])
                queued = connection.send_line(
                    line.render(), sender=sender, turn=turn, written=track
                )
                lines.append(SentLine(piece, queued, receipt, connection))
            sent.append(lines)
            asks = number % FENCE_INTERVAL == 0 or number == len(texts)
            fence = session.fence(tuple(labels)) if asks and labels else None
            if fence:
                connection.send_line(fence.render(), sender=sender, turn=turn)
        return sent

    def split(self, target: str, text: str, kind: Talk = "PRIVMSG") -> list[str]:
        """Return the lines into which `text` to `target` is split."""
        space = budget(self.session.isupport, self.session.source, kind, target)
        return split(text, space)

    @property
    def shows_typing(self) -> bool:
        """True if the server passes typing notifications on."""
        has_tags = "message-tags" in self.session.capabilities
        return has_tags and self.session.isupport.passes_tag("typing")

    def show_typing(self, target: str, state: Literal["active", "done"]) -> None:
        """Tell those who read `target` that we are writing there, or no longer, if the server
        passes that on. It goes out when nothing else waits to be sent."""
        if self._connection and self.shows_typing and self.reaches(target):
            if self._typing:
                self._typing.cancel()  # one that still waits is out of date
            line = Message("TAGMSG", (target,), tags={"+typing": state}).render()
            self._typing = self._connection.send_line(line, idle=True)

    def join(self, channel: str, key: str = "") -> None:
        """Join `channel`, now and after each reconnect. Raises InvalidMessage for a bad name."""
        self._require_channel(channel)
        line = Message("JOIN", (channel, key) if key else (channel,)).render()
        self._wanted[channel] = key
        if self.session.is_ready:
            self.send_line(line)
        self._note_joined()

    def part(self, channel: str, reason: str = "") -> None:
        """Leave `channel` and do not rejoin it. Raises InvalidMessage for a bad name."""
        self._require_channel(channel)
        line = Message("PART", (channel, reason) if reason else (channel,)).render()
        for name in [n for n in self._wanted if self.fold(n) == self.fold(channel)]:
            del self._wanted[name]
        if self.roster.channel(channel):
            self.send_line(line)
        self._note_joined()

    def send_line(self, line: str, urgent: bool = False) -> Sent:
        """Queue a raw line. Line breaks become spaces, so it cannot inject another command."""
        clean = line.rstrip("\r\n").translate({10: " ", 13: " ", 0: None})
        if self._connection:
            return self._connection.send_line(clean, urgent)
        nothing: Sent = asyncio.get_running_loop().create_future()
        nothing.set_result(False)
        return nothing

    def close(self, reason: str = "") -> None:
        """Send QUIT; `run` returns when the server has closed the connection."""
        self._closing.set()
        # QUIT overtakes the PINGs in the send queue, which ask for the receipts of these lines.
        pending = tuple(self.session.pending_lines)
        if pending and (fence := self.session.fence(pending)):
            self.send_line(fence.render(), urgent=True)
        self.send_line(f"QUIT :{reason}", urgent=True)

    async def quit(self, reason: str = "") -> None:
        """Send QUIT; the connection ends, and `run` returns, within `QUIT_TIMEOUT` seconds."""
        self.close(reason)
        if self._connection:
            await self._connection.wait_disconnected(QUIT_TIMEOUT)

    async def _wait_backoff(self) -> None:
        if self._closing.is_set() or self.session.upgrade:  # STS: reconnect with TLS at once
            return
        unwelcome = _UNWELCOME.search(self.session.error or "")
        delay = self._backoff.delay(at_least=UNWELCOME_WAIT if unwelcome else 0.0)
        log.info("irc.reconnecting", network=self.name, seconds=round(delay, 1))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), delay)

    def _on_change(self) -> None:
        announced = self.session.sts
        if announced != self._noted:
            self._noted = announced
            # A demand over an unencrypted connection may be forged and its duration does not count.
            # A policy is stored only when announced over TLS; its port is the one that we are
            # using.
            if self.session.upgrade:
                self._policies.upgrade(self.server, self.session.upgrade)
            elif announced and announced.duration is not None and self.session.encrypted:
                self._policies.store(self.server, self._port, announced.duration)
        if self.session.is_ready and not self.connected.is_set():
            self.connected.set()
            log.info("irc.connected", network=self.name, nick=self.nick)
            if self._plugins:
                self._plugins.notify("server_ready")
        self._note_joined()

    def _note_joined(self) -> None:
        if self.session.is_joined:
            self.all_joined.set()
        else:
            self.all_joined.clear()
        self.recheck()

    def _require_channel(self, name: str) -> None:
        if not self.session.isupport.is_channel(name) or any(c in name for c in " ,\r\n\0\a"):
            raise InvalidMessage(f"{name!r} is not the name of a channel")


@dataclass(frozen=True, slots=True)
class SentLine:
    """A line in delivery.

    `sent` resolves when the line is written, `receipt` when the server has accepted or refused it.
    """

    text: str
    sent: Sent
    receipt: asyncio.Future[Receipt]
    connection: IrcConnection

    async def outcome(self) -> Receipt:
        """Wait for the outcome of the line and return it.

        If there is no receipt after `ECHO_TIMEOUT` seconds, a PING is sent; if the server answers
        that but not the line, the line counts as accepted. If the connection is closed first, it is
        LOST.
        """
        if not await self.sent:
            return LOST
        # With a receipt it does not wait: those of the last lines may come just before a stop.
        if not self.receipt.done():
            await asyncio.wait({self.receipt}, timeout=ECHO_TIMEOUT)
        if not self.receipt.done():
            answered = asyncio.create_task(self.connection.lag())
            either: set[asyncio.Future[Any]] = {self.receipt, answered}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                answered.cancel()
        return self.receipt.result() if self.receipt.done() else ACCEPTED

    def cancel(self) -> None:
        """Withdraw the line if it is still queued."""
        self.sent.cancel()


def name_and_key(channel: str) -> tuple[str, str]:
    """Split a channel setting, "#name key", into name and key ("" if there is none)."""
    name, _, key = channel.strip().partition(" ")
    return name, key.strip()
