"""One IRC network, for as long as the process lives."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import structlog

from harnesses.irc.protocol.errors import InvalidMessage, IrcError, UntrustedCertificate
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import Message, Source
from harnesses.irc.protocol.sent_lines import ACCEPTED, LOST, Receipt, ReceiptStatus, budget, split
from harnesses.irc.session.session import Session
from harnesses.irc.session.state import JoinRefusal, Member, utc_now
from harnesses.irc.session.sts import Sts, StsPolicies
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.connection import IrcClient, PluginHost, Sent
from harnesses.irc.transport.tls import explain, tls_context
from terrarium.backoff import Backoff

log = structlog.get_logger()

RECONNECT = 2.0, 300.0
"""Seconds before the first attempt to connect again, and the longest wait."""

SILENCE = 90.0
"""Seconds without a word of the server before we ask; after as many again it counts as gone."""

QUIT_WITHIN = 2.0
"""Seconds."""

LAG_WITHIN = 5.0
"""Seconds in which a server answers, or its lag is unknown."""

WHOIS_WITHIN = 10.0
"""Seconds to wait for the server to tell who somebody is."""

ECHO_WITHIN = 10.0
"""Seconds to wait for the server to show us a line of our own."""

FENCE_EVERY = 2
"""Lines after which a server that does not echo them is asked, by a PING, whether it has them."""

UNWELCOME_WAIT = 60.0
"""Seconds to wait at least after the server has called us banned or too fast."""

Talk = Literal["PRIVMSG", "NOTICE", "ACTION"]
"""How something is said; an ACTION is a PRIVMSG in a CTCP wrapping."""

_UNWELCOME = re.compile(r"throttl|\bban|[a-z]-?lined|too (many|fast)|trying to reconnect", re.I)


class Network:
    """Connects, stays connected, and tells what happens.

    Our own messages are no events: `privmsg` and its like return what went out. `connected` is set
    while the server has us registered, `all_joined` while we are in all the channels we want.
    `left` is the time of the last word on the connection before this one.
    `plugins` makes the host of its plugins, `policies` remembers which servers insist on TLS.
    Raises IrcError when the settings name no server.
    """

    def __init__(
        self,
        name: str,
        settings: NetworkSettings,
        *,
        plugins: Callable[[Network], PluginHost] | None = None,
        policies: StsPolicies | None = None,
        backoff: Backoff | None = None,
        silence: float = SILENCE,
    ) -> None:
        if settings.server is None:
            raise IrcError(f"the network {name} has no server; set its key `server`")
        self.name, self._server = name, settings.server
        self.connected, self.all_joined = asyncio.Event(), asyncio.Event()
        self._settings, self._make_plugins = settings, plugins
        self._policies = policies or StsPolicies()
        self._backoff = backoff or Backoff(*RECONNECT, jitter=random.random)
        self._silence = silence
        self._wanted = dict(name_and_key(channel) for channel in settings.channels)
        self._session = Session(name, settings, self._wanted)
        self._client: IrcClient | None = None
        self._port = settings.port
        self._noted: Sts | None = None
        self._closing = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._failure = "it is connecting"
        self._may_speak: Callable[[], bool] = _always
        self.left: datetime | None = None

    def __repr__(self) -> str:
        state = "connected" if self.connected.is_set() else "not connected"
        return f"<Network {self.name} as {self.nick}, {state}>"

    @property
    def nick(self) -> str:
        """Our nick at this moment."""
        return self._session.nick

    @property
    def source(self) -> Source:
        """Our source as others see it; user and host are None while unknown."""
        return self._session.source

    @property
    def server(self) -> str:
        """The server's name or address, as configured."""
        return self._server

    @property
    def channels(self) -> list[str]:
        """The channels we are in."""
        return self._session.roster.channels

    def members(self, channel: str) -> list[str]:
        """Return the nicks in `channel`, sorted; none when we are not there."""
        known = self._session.roster.channel(channel)
        return sorted((m.nick for m in known.members.values()), key=str.casefold) if known else []

    def is_channel(self, name: str) -> bool:
        """Return whether `name` is that of a channel here."""
        return self._session.isupport.is_channel(name)

    def member(self, channel: str, nick: str) -> Member | None:
        """Return `nick` as known in `channel`, if they are there and we are."""
        known = self._session.roster.channel(channel)
        return known.members.get(self.fold(nick)) if known else None

    def person(self, nick: str) -> Member | None:
        """Return `nick` as known from any channel that we share with them."""
        return self._session.roster.member(nick)

    async def whois(self, nick: str) -> Member | None:
        """Ask the server who has `nick` at this moment; None for nobody, and where it does not
        answer in good time."""
        if not self._client or not self.connected.is_set():
            return None
        answer: asyncio.Future[Member | None] = asyncio.get_running_loop().create_future()

        def found(member: Member | None) -> None:
            if not answer.done():
                answer.set_result(member)

        if question := self._session.whois(nick, found):
            self.send_line(question.render())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WHOIS_WITHIN):
                return await answer
        return None

    def people(self) -> list[Member]:
        """Return everybody on our channels, once for each channel."""
        known = map(self._session.roster.channel, self.channels)
        return [member for channel in known if channel for member in channel.members.values()]

    def is_operator(self, channel: str) -> bool:
        """Return whether we are an operator of `channel`."""
        return self._session.roster.is_operator(channel, self.nick)

    def topic(self, channel: str) -> str:
        """Return the topic of `channel`; empty where there is none, or we are not there."""
        known = self._session.roster.channel(channel)
        return known.topic if known else ""

    @property
    def settings(self) -> NetworkSettings:
        """The settings that the next connection uses."""
        return self._settings

    def reaches(self, target: str) -> bool:
        """Return whether a channel, or a part of one (`@#c`), in which we have to be, or a person
        can be written to."""
        if not self._may_speak():
            return False
        channel = self._session.isupport.channel_of(target)
        if channel is None:
            return self.connected.is_set()
        return self._session.roster.channel(channel) is not None

    async def until_reaches(self, target: str) -> None:
        """Wait until `target` can be written to."""
        while not self.reaches(target):
            changed = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed

    @property
    def refusals(self) -> list[JoinRefusal]:
        """The channels that we want to be in and that do not let us in."""
        return self._session.refusals

    @property
    def problem(self) -> str:
        """Why we are not connected, or not logged in to services, for people; "" when all is
        well."""
        return self._session.login_problem if self.connected.is_set() else self._failure

    @property
    def account(self) -> str | None:
        """The services account that we are logged in to by SASL."""
        return self._session.account

    @property
    def is_settled(self) -> bool:
        """True when we are on one of our channels at least, if there are any, and each other one
        has refused us or removed us again."""
        refused = {self.fold(refusal.channel) for refusal in self.refusals}
        is_answered = all(
            self._session.roster.has_visited(name) or self.fold(name) in refused
            for name in self._wanted
        )
        is_there = bool(self.channels) or not self._wanted
        return self.connected.is_set() and is_there and is_answered

    def configure(self, settings: NetworkSettings) -> None:
        """Use other settings from the next connection on."""
        self._settings = settings

    def claim_nick(self, settings: NetworkSettings) -> None:
        """Use other settings, which differ in the nick, now and from the next connection on."""
        self._settings = settings
        if self._client:
            self._client.claim_nick(settings)

    def restrict(self, may_speak: Callable[[], bool]) -> None:
        """Say nothing to anybody while `may_speak` returns False; `recheck` has to be called when
        it returns something else."""
        self._may_speak = may_speak
        if self._client:
            self._client.restrict(may_speak)

    def recheck(self) -> None:
        """Wake those who wait until somebody can be written to."""
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)
        self._waiting.clear()

    def fold(self, name: str) -> str:
        """Return `name` in the form in which equal nicks and channels are equal strings here."""
        return self._session.isupport.fold(name)

    async def lag(self) -> float | None:
        """Return the seconds until the server answers, or None when it does not in good time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAG_WITHIN):
                return await self._client.lag() if self._client else None
        return None

    async def has_replayed(self, target: str, text: str, since: datetime) -> bool:
        """Return whether the server tells, by playing it back, that it has taken a line which we
        have sent `since` then and of which the connection has not let us know."""
        await self.lag()  # what it plays back comes before its next answer
        return self._session.has_replayed(target, text, since)

    async def until_joined(self) -> None:
        """Wait until we are in every channel we want, however long one does not let us in."""
        await self.all_joined.wait()

    async def run(self, on_event: Callable[[IrcEvent], None]) -> None:
        """Be on the network until `quit`.

        `on_event` is called synchronously, in the order of arrival; what it raises ends this.
        """
        plugins = self._make_plugins(self) if self._make_plugins else None
        while not self._closing.is_set():
            self._port, encrypted = self._endpoint()
            self._noted = None
            self._session = Session(self.name, self._settings, self._wanted, encrypted=encrypted)
            changed = functools.partial(self._on_change, plugins)
            trusted = self._settings.tls_fingerprints
            rate = self._settings.lines_per_second
            client = IrcClient(
                self._session, on_event, changed, plugins, self._silence, trusted, rate
            )
            client.restrict(self._may_speak)
            self._client = client
            try:
                await self._serve_connection(client)
            except (OSError, UnicodeError) as error:
                self._failure = explain(error, self._port, encrypted)
                log.warning("irc.connect_failed", network=self.name, error=self._failure)
            finally:
                self._reset()
            await self._wait_backoff()

    async def privmsg(self, target: str, text: str) -> list[str]:
        """Say `text`; return the lines that the server took, which are none without a connection.

        Raises InvalidMessage when `target` cannot be one.
        """
        return await self._accepted_lines("PRIVMSG", target, text)

    async def notice(self, target: str, text: str) -> list[str]:
        """Send `text` as `privmsg` does, as a NOTICE."""
        return await self._accepted_lines("NOTICE", target, text)

    async def action(self, target: str, text: str) -> list[str]:
        """Send `text` as `privmsg` does, as an action; returned lines have no CTCP wrapping."""
        return await self._accepted_lines("ACTION", target, text)

    def send(self, target: str, *texts: tuple[Talk, str]) -> list[list[SentLine]]:
        """Put texts in the queue, each with how it is said; return the lines of each, in order,
        none without a connection. Raises InvalidMessage when `target` cannot be one."""
        sent: list[list[SentLine]] = []
        for number, (command, text) in enumerate(texts, 1):
            sent.append(self._say(command, target, text, tracked=True))
            asks = number % FENCE_EVERY == 0 or number == len(texts)
            fence = self._session.fence() if asks and any(sent) else None
            if fence:
                self.send_line(fence.render())
        return sent

    def split(self, target: str, text: str, command: str = "PRIVMSG") -> list[str]:
        """Return the lines of `text` to `target`, as `privmsg` (or `command`) would send them."""
        space = budget(self._session.isupport, self._session.source, command, target)
        return split(text, space)

    def say(self, command: Talk, target: str, text: str) -> Sent | None:
        """Put `text` in the queue; the result is done with its last line.

        Where the server echoes, what it took is an event, as nobody waits for it here.
        """
        lines = self._say(command, target, text, tracked=False)
        return lines[-1].sent if lines else None

    def join(self, channel: str, key: str = "") -> None:
        """Join `channel`, now and after each reconnect. Raises InvalidMessage."""
        self._require_channel(channel)
        line = Message("JOIN", (channel, key) if key else (channel,)).render()
        self._wanted[channel] = key
        if self._session.is_ready:
            self.send_line(line)
        self._note_joined()

    def part(self, channel: str, reason: str = "") -> None:
        """Leave `channel` and do not come back. Raises InvalidMessage."""
        self._require_channel(channel)
        line = Message("PART", (channel, reason) if reason else (channel,)).render()
        for name in [n for n in self._wanted if self.fold(n) == self.fold(channel)]:
            del self._wanted[name]
        if self._session.roster.channel(channel):
            self.send_line(line)
        self._note_joined()

    def send_line(self, line: str, urgent: bool = False) -> Sent:
        """Send a raw line; line breaks in it become spaces."""
        clean = line.rstrip("\r\n").translate({10: " ", 13: " ", 0: None})
        if self._client:
            return self._client.send_line(clean, urgent)
        nothing: Sent = asyncio.get_running_loop().create_future()
        nothing.set_result(False)
        return nothing

    def close(self, reason: str = "") -> None:
        """Ask the server to let us go; `run` ends when it has."""
        self._closing.set()
        self.send_line(f"QUIT :{reason}", urgent=True)

    async def quit(self, reason: str = "") -> None:
        """Leave the network, in two seconds at most; `run` ends."""
        self.close(reason)
        if self._client:
            await self._client.wait_disconnected(QUIT_WITHIN)

    def _endpoint(self) -> tuple[int, bool]:
        """Return the port to connect to, and whether by TLS: as set, or as the server insists."""
        settings = self._settings
        insisted = None if settings.tls else self._policies.port(self._server)
        return insisted or settings.port, settings.tls or insisted is not None

    async def _serve_connection(self, client: IrcClient) -> None:
        tls = tls_context(self._settings) if self._session.encrypted else None
        await client.open(self._server, self._port, tls)
        self._backoff.mark_started()
        fault = await client.wait_closed()
        if self._session.encrypted and not isinstance(fault, UntrustedCertificate):
            self._policies.renew(self._server)
        if fault and not isinstance(fault, OSError):
            raise fault  # not the network's: `on_event` has failed
        if self._session.upgrade:
            log.info("irc.sts_upgrade", network=self.name, port=self._session.upgrade)
        elif not self._closing.is_set():
            why = self._session.error or str(fault or "the server closed the connection")
            self._failure = f"disconnected: {why}"
            log.warning("irc.disconnected", network=self.name, error=why)

    def _reset(self) -> None:
        if self._client:
            if self.connected.is_set():
                self.left = utc_now() - timedelta(seconds=self._client.silent_for())
            self._client.close()
        self._client = None
        self.connected.clear()
        self.all_joined.clear()

    async def _wait_backoff(self) -> None:
        if self._closing.is_set() or self._session.upgrade:
            return
        unwelcome = _UNWELCOME.search(self._session.error or "")
        delay = self._backoff.delay(at_least=UNWELCOME_WAIT if unwelcome else 0.0)
        log.info("irc.reconnecting", network=self.name, seconds=round(delay, 1))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._closing.wait()

    def _on_change(self, plugins: PluginHost | None) -> None:
        self._note_sts()
        if self._session.is_ready and not self.connected.is_set():
            self.connected.set()
            log.info("irc.connected", network=self.name, nick=self.nick)
            if plugins:
                plugins.on_ready()
        self._note_joined()

    def _note_joined(self) -> None:
        if self._session.is_joined:
            self.all_joined.set()
        else:
            self.all_joined.clear()
        self.recheck()

    def _note_sts(self) -> None:
        announced = self._session.sts
        if announced == self._noted:
            return
        self._noted = announced
        if self._session.upgrade:
            self._policies.upgrade(self._server, self._session.upgrade)
        elif announced and announced.duration is not None and self._session.encrypted:
            self._policies.store(self._server, self._port, announced.duration)

    def _require_channel(self, name: str) -> None:
        if not self._session.isupport.is_channel(name) or any(c in name for c in " ,\r\n\0\a"):
            raise InvalidMessage(f"{name!r} is not the name of a channel")

    def _say(self, command: Talk, target: str, text: str, tracked: bool) -> list[SentLine]:
        Message("PRIVMSG", (target, "")).render()  # a bad target is an error also when offline
        if not self._client or not self.connected.is_set() or not self._may_speak():
            return []
        wire = "PRIVMSG" if command == "ACTION" else command
        wrapped = "\x01ACTION {}\x01" if command == "ACTION" else "{}"
        lines = []
        for piece in self.split(target, text, command):
            number, tags = self._session.track(target) if tracked else ("", {})
            line = Message(wire, (target, wrapped.format(piece)), tags=tags).render()
            receipt = self._client.receipt(number) if tracked else None
            lines.append(SentLine(piece, self._client.send_line(line), receipt, self._client))
        return lines

    async def _accepted_lines(self, command: Talk, target: str, text: str) -> list[str]:
        (lines,) = self.send(target, (command, text))
        try:
            receipts = [(line.text, await line.settled()) for line in lines]
        except asyncio.CancelledError:
            for line in lines:
                line.cancel()
            raise
        return [line for line, receipt in receipts if receipt.status is ReceiptStatus.ACCEPTED]


@dataclass(frozen=True, slots=True)
class SentLine:
    """A line of ours on its way: `sent` when it is written, `receipt` when the server has told what
    became of it."""

    text: str
    sent: Sent
    receipt: asyncio.Future[Receipt] | None
    client: IrcClient

    async def settled(self) -> Receipt:
        """Return what became of it, once that is known or the connection gone.

        A server that says nothing of the line in time, and answers a PING after it, is believed to
        have taken it.
        """
        if not await self.sent:
            return LOST
        if self.receipt is None:
            return ACCEPTED
        done, _ = await asyncio.wait({self.receipt}, timeout=ECHO_WITHIN)
        if not done:
            answered = asyncio.create_task(self.client.lag())
            either: set[asyncio.Future[Any]] = {self.receipt, answered}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                answered.cancel()
        return self.receipt.result() if self.receipt.done() else ACCEPTED

    def cancel(self) -> None:
        """Take it back, if it has not gone out."""
        self.sent.cancel()


def _always() -> bool:
    return True


def name_and_key(channel: str) -> tuple[str, str]:
    """Split a channel of the settings, "#name key", into name and key; the key may be ""."""
    name, _, key = channel.strip().partition(" ")
    return name, key.strip()
