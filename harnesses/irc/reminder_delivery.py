"""Reminders on IRC: to whom one is said, where, and in which time zone its times are meant."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from harnesses.irc.policy.log_records import channel_key
from harnesses.irc.policy.requests import CommandRequest, identity_of
from harnesses.irc.reminders import TIMEZONE_FACT, ReminderService
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from llm.scheduling.cron_schedule import is_zone
from storage.chat_log.event import Identity, Place
from storage.chat_log.pending_event import PendingEvent
from storage.memory.memories import person_of
from storage.queues.reminders import Owner, Reminder

_AGAIN = timedelta(seconds=15)  # until a place that we are not in is tried again
_ABSENT = timedelta(minutes=2)  # until somebody who is not there is looked for again


def create_service(services: BotServices) -> ReminderService:
    """Return the reminders of the IRC tendril."""
    tendril, sender = services.tendril, services.sender

    async def say(reminder: Reminder, text: str) -> timedelta | None:
        owner, place = reminder.owner, reminder.place
        network = services.networks.get(place.network)
        if network is None:
            return _AGAIN
        who, recipient = Identity(owner.nick, owner.user, owner.host, owner.account), place.channel
        if reminder.private:
            found = await _find_owner(network, owner)
            if found is None:
                return _ABSENT
            who, recipient = found, found.nick
            place = Place(network.name, who.room(network.fold))
        elif not network.reaches(place.channel):
            return _AGAIN
        hides = services.opt_outs.opt_out_rules.hides_person
        target = sender.target(network, place, private=reminder.private)
        asked = PendingEvent(None)  # so that what we say goes when what was asked for is forgotten
        asked.mark_visible(reminder.question_event_id)
        target = replace(
            target,
            recipient=recipient,
            nick=who.nick,
            logged=target.logged and not hides(owner.network, who),
            answers=asked,
        )
        return None if await sender.say(target, text) else _AGAIN

    async def zone(request: CommandRequest) -> str:
        fold = request.network.fold
        room, person = channel_key(request.place, fold), person_of(fold(request.who.name))
        fact = await tendril.memory.memories.fact(room, person, TIMEZONE_FACT)
        return fact.text if fact and is_zone(fact.text) else tendril.agent.zone_name

    lock = tendril.config.data / "run" / f"{tendril.name}-reminders.lock"
    return ReminderService(tendril.database, tendril.clock, zone, say, lock)


async def _find_owner(network: Network, owner: Owner) -> Identity | None:
    """Return the owner of a reminder as they are on the network at this moment, under whatever
    nick when they have an account; None while they are not there, whoever has their nick."""

    def is_owner(who: Identity) -> bool:
        if owner.account:
            return who.account is not None and fold(who.account) == fold(owner.account)
        ours = Identity(owner.nick, owner.user, owner.host)
        return replace(who, account=None).room(fold) == ours.room(fold)

    fold = network.fold
    for who in map(identity_of, network.people()):
        if is_owner(who):
            return who
    member = await network.whois(owner.nick)
    who_now = identity_of(member) if member else None
    return who_now if who_now and is_owner(who_now) else None
