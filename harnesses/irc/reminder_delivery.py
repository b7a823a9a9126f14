"""Reminders on IRC: who asks for one, and to whom and where it is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from harnesses.core.services.reminders import Requester
from harnesses.irc.policy.log_records import channel_key
from harnesses.irc.policy.requests import CommandRequest, identity_of
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from storage.chat_log.event import Identity, PendingEvent, Place
from storage.queues.reminders import Owner, Reminder

_AGAIN = timedelta(seconds=15)  # until a place that we are not in is tried again
_ABSENT = timedelta(minutes=2)  # until somebody who is not there is looked for again


async def say_reminder(services: BotServices, reminder: Reminder, text: str) -> timedelta | None:
    """Say a reminder where it belongs; return how long to wait if that is not possible now."""
    sender, owner, place = services.sender, reminder.owner, reminder.place
    network = services.networks.get(place.network)
    if network is None:
        return _AGAIN
    who, recipient = Identity(owner.nick, owner.user, owner.host, owner.account), place.channel
    if reminder.private:
        found = await find_owner(network, owner)
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


def requester_of(request: CommandRequest) -> Requester:
    """Return whoever gave a command as somebody who asks for reminders."""
    who, fold = request.who, request.network.fold
    return Requester(
        owner=Owner(request.network.name, who.nick, who.user, who.host, who.account),
        place=request.place,
        private=request.private,
        room=channel_key(request.place, fold),
        person=fold(who.name),
        question=request.pending_event,
        queued=request.queued,
        is_admin=request.admin,
    )


async def find_owner(network: Network, owner: Owner) -> Identity | None:
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
