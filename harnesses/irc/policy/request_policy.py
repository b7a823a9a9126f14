"""Who speaks, and whether they may have what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

import structlog

from harnesses.irc.channel_settings import AdminOverrides
from harnesses.irc.policy.bots_and_relays import BotLoopDetector, is_bot, resolve_relay
from harnesses.irc.policy.command_request import CommandRequest, ParsedCommand, parse_command
from harnesses.irc.policy.log_records import place_of, scope_of
from harnesses.irc.policy.rate_limit import TokenBuckets
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.identity import Identity, matches_any
from harnesses.irc.settings import IrcSettings
from harnesses.irc.transport.network import Network
from storage.chat_log.pending_event import PendingEvent

_log = structlog.get_logger()


class Decision(Enum):
    """Whether a command is carried out; TELL: not, and the person is told why, once."""

    YES = "yes"
    NO = "no"
    TELL = "tell"


class RequestPolicy:
    """What reaches the bot. `clock` returns seconds and never goes back."""

    def __init__(
        self, settings: IrcSettings, overrides: AdminOverrides, clock: Callable[[], float]
    ) -> None:
        self._overrides, self._clock = overrides, clock
        self._loop_detector = BotLoopDetector(clock)
        self.configure(settings)

    def configure(self, settings: IrcSettings) -> None:
        """Go by other settings from now on."""
        self._settings = settings
        person, room = settings.person_per_minute / 60, settings.channel_per_minute / 60
        self._people = TokenBuckets(person, self._clock, refusals_cost=True)
        self._rooms = TokenBuckets(room, self._clock, refusals_cost=False)

    def speaker(self, network: Network, event: IrcEvent) -> tuple[IrcEvent, Identity]:
        """The event as of whoever really speaks."""
        return resolve_relay(event, self._settings, network.fold)

    def parse_trigger(
        self, network: Network, event: IrcEvent, who: Identity, prefix: str
    ) -> ParsedCommand | None:
        """What an event asks of us, if it is one that is answered at all."""
        if event.type != "PRIVMSG":
            return None
        private = event.channel is None
        asked = parse_command(event.text, prefix=prefix, nick=network.nick, private=private)
        if not asked or not self.should_process(network, event, who):
            return None
        by_prefix = event.text.strip().startswith(prefix)
        return None if not by_prefix and self.is_bot_loop(network, who, event.text) else asked

    def is_bot_loop(self, network: Network, who: Identity, text: str) -> bool:
        """Whether these words to us go round in a loop with another bot, which has to end."""
        closed = self._loop_detector.is_loop(_person(network, who), text)
        if closed:
            _log.info("irc.loop_ended", network=network.name, nick=who.nick)
        return closed

    def should_process(self, network: Network, event: IrcEvent, who: Identity) -> bool:
        """Whether an event is of somebody whom we answer, and of now."""
        if event.own or event.batch_type or is_bot(event, who, self._settings, network.fold):
            return False
        return not self._is_ignored(network, who)

    def request(
        self,
        network: Network,
        event: IrcEvent,
        who: Identity,
        words: str,
        pending_event: PendingEvent,
    ) -> CommandRequest:
        """What somebody asks with `words`."""
        place = place_of(event)
        return CommandRequest(
            network=network,
            place=place,
            private=event.channel is None,
            who=who,
            words=words,
            scope=scope_of(place, self._settings.channel_groups),
            pending_event=pending_event,
            admin=self.is_admin(network, who),
        )

    def decide(self, request: CommandRequest) -> Decision:
        """Whether neither the person nor the channel has asked for too much lately."""
        person = _person(request.network, request.who)
        room = (person[0], request.network.fold(request.place.channel))
        if self._people.try_acquire(person) and self._rooms.try_acquire(room):
            return Decision.YES
        return Decision.TELL if self.should_notify(request) else Decision.NO

    def should_notify(self, request: CommandRequest) -> bool:
        """Whether to tell whoever asks that it is too much: once a minute."""
        return self._people.should_notify(_person(request.network, request.who))

    def note_reply(self, request: CommandRequest) -> None:
        """We have said something to whoever asked."""
        self.spoke_to(request.network, request.who.name)

    def spoke_to(self, network: Network, name: str) -> None:
        """We have said something to somebody."""
        self._loop_detector.note_reply((network.name, network.fold(name)))

    def is_admin(self, network: Network, who: Identity) -> bool:
        """Whether somebody may give admin commands; nobody who speaks through a relay."""
        return not who.bridged and matches_any(who, self._settings.admins, network.fold)

    def _is_ignored(self, network: Network, who: Identity) -> bool:
        masks: Collection[str] = (
            *self._settings.ignore,
            *self._overrides.ignore_masks(network.name),
        )
        return matches_any(who, masks, network.fold) and not self.is_admin(network, who)


def _person(network: Network, who: Identity) -> tuple[str, str]:
    return network.name, network.fold(who.name)
