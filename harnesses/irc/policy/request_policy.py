"""Who speaks, and whether they may have what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

import structlog

from harnesses.irc.channel_settings import Choices
from harnesses.irc.policy.bots_and_relays import Loops, is_bot, unbridged
from harnesses.irc.policy.command_request import Request, Trigger, trigger
from harnesses.irc.policy.log_records import place_of, scope_of
from harnesses.irc.policy.rate_limit import Buckets
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.identity import Identity, listed
from harnesses.irc.settings import IrcSettings
from harnesses.irc.transport.network import Network
from storage.chat_log.pending_event import Entry

_log = structlog.get_logger()


class May(Enum):
    """Whether a command is carried out; TELL: not, and the person is told why, once."""

    YES = "yes"
    NO = "no"
    TELL = "tell"


class Hearing:
    """What reaches the bot. `clock` returns seconds and never goes back."""

    def __init__(self, settings: IrcSettings, choices: Choices, clock: Callable[[], float]) -> None:
        self._choices, self._clock = choices, clock
        self._loops = Loops(clock)
        self.configure(settings)

    def configure(self, settings: IrcSettings) -> None:
        """Go by other settings from now on."""
        self._settings = settings
        person, room = settings.person_per_minute / 60, settings.channel_per_minute / 60
        self._people = Buckets(person, self._clock, refusals_cost=True)
        self._rooms = Buckets(room, self._clock, refusals_cost=False)

    def speaker(self, network: Network, event: IrcEvent) -> tuple[IrcEvent, Identity]:
        """The event as of whoever really speaks."""
        return unbridged(event, self._settings, network.fold)

    def asked(
        self, network: Network, event: IrcEvent, who: Identity, prefix: str
    ) -> Trigger | None:
        """What an event asks of us, if it is one that is answered at all."""
        if event.type != "PRIVMSG":
            return None
        private = event.channel is None
        asked = trigger(event.text, prefix=prefix, nick=network.nick, private=private)
        if not asked or not self.heeds(network, event, who):
            return None
        by_prefix = event.text.strip().startswith(prefix)
        return None if not by_prefix and self.in_loop(network, who, event.text) else asked

    def in_loop(self, network: Network, who: Identity, text: str) -> bool:
        """Whether these words to us go round in a loop with another bot, which has to end."""
        closed = self._loops.closed(_person(network, who), text)
        if closed:
            _log.info("irc.loop_ended", network=network.name, nick=who.nick)
        return closed

    def heeds(self, network: Network, event: IrcEvent, who: Identity) -> bool:
        """Whether an event is of somebody whom we answer, and of now."""
        if event.own or event.batch_type or is_bot(event, who, self._settings, network.fold):
            return False
        return not self._ignored(network, who)

    def request(
        self,
        network: Network,
        event: IrcEvent,
        who: Identity,
        words: str,
        line: Entry,
    ) -> Request:
        """What somebody asks with `words`."""
        place = place_of(event)
        return Request(
            network=network,
            place=place,
            private=event.channel is None,
            who=who,
            words=words,
            scope=scope_of(place, self._settings.channel_groups),
            line=line,
            admin=self.is_admin(network, who),
        )

    def may(self, request: Request) -> May:
        """Whether neither the person nor the channel has asked for too much lately."""
        person = _person(request.network, request.who)
        room = (person[0], request.network.fold(request.place.channel))
        if self._people.take(person) and self._rooms.take(room):
            return May.YES
        return May.TELL if self.tells(request) else May.NO

    def tells(self, request: Request) -> bool:
        """Whether to tell whoever asks that it is too much: once a minute."""
        return self._people.tell(_person(request.network, request.who))

    def answered(self, request: Request) -> None:
        """We have said something to whoever asked."""
        self.spoke_to(request.network, request.who.name)

    def spoke_to(self, network: Network, name: str) -> None:
        """We have said something to somebody."""
        self._loops.answered((network.name, network.fold(name)))

    def is_admin(self, network: Network, who: Identity) -> bool:
        """Whether somebody may give admin commands; nobody who speaks through a relay."""
        return not who.bridged and listed(who, self._settings.admins, network.fold)

    def _ignored(self, network: Network, who: Identity) -> bool:
        masks: Collection[str] = (*self._settings.ignore, *self._choices.ignored(network.name))
        return listed(who, masks, network.fold) and not self.is_admin(network, who)


def _person(network: Network, who: Identity) -> tuple[str, str]:
    return network.name, network.fold(who.name)
