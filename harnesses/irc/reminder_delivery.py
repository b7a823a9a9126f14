"""Reminders on IRC: those of others, their owners, and delivery to channel or person."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from harnesses.core.services.reminders import Requester
from harnesses.irc.policy.requests import IrcRequest, identity_of, is_person
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from storage.chat_log.event import Identity, PendingEvent, Place
from storage.queues.reminders import Owner, Reminder

_RETRY_DELAY = timedelta(seconds=15)  # before the next try while we cannot write to the place
_ABSENT_DELAY = timedelta(minutes=2)  # before the next look for an owner who is away


async def say_reminder(services: BotServices, reminder: Reminder, text: str) -> timedelta | None:
    """Say a reminder on its channel, or privately to its owner.

    Return the delay before the next try, None once it has been said.
    """
    sender, owner, place = services.sender, reminder.owner, reminder.place
    network = services.networks.get(place.network)
    if network is None:
        return _RETRY_DELAY
    who, recipient = Identity(owner.nick, owner.user, owner.host, owner.account), place.channel
    if reminder.private:
        found = await find_owner(network, owner)
        if found is None:
            return _ABSENT_DELAY
        who, recipient = found, found.nick
        place = Place(network.name, who.room(network.fold))
    elif not network.reaches(place.channel):
        return _RETRY_DELAY
    hides = services.medium.log.opt_outs.opt_out_rules.hides_person
    target = sender.target(network, place)
    target = replace(
        target,
        recipient=recipient,
        nick=who.nick,
        logged=target.logged and not hides(owner.network, who),
        # The line that asked for it, so that erasing that line erases this one too.
        answers=PendingEvent.stored(reminder.question_event_id),
    )
    return None if await sender.say(target, text) else _RETRY_DELAY


async def other_requester(
    services: BotServices, request: IrcRequest, nick: str
) -> Requester | None:
    """Return somebody who is on the channel of a request, as the requester of a reminder there;
    None if they are not, or want nothing to be kept of them."""
    network, fold = request.network, request.network.fold
    member = None if request.private else network.roster.member(request.place.channel, nick)
    if member and not member.host:  # here since before we came, and silent
        member = await network.whois(member.nick)
    who = identity_of(member) if member else None
    if who is None or not is_person(who, fold) or fold(who.nick) == fold(network.nick):
        return None
    if services.medium.log.opt_outs.opt_out_rules.hides_person(network.name, who):
        return None
    own = request.requester
    owner = Owner(network.name, who.nick, who.user, who.host, who.account)
    person = services.policy.key_of_person(network, who)
    return replace(own, owner=owner, person=person, is_admin=False)


async def find_owner(network: Network, owner: Owner) -> Identity | None:
    """Return the current identity of a reminder's owner; None while they are not on the network.

    An owner with a services account is recognised by it, under any nick. One without needs the same
    nick, user name and host: a nick alone can be taken by anybody.
    """

    def is_owner(who: Identity) -> bool:
        if owner.account:
            return who.account is not None and fold(who.account) == fold(owner.account)
        ours = Identity(owner.nick, owner.user, owner.host)
        return replace(who, account=None).room(fold) == ours.room(fold)

    fold = network.fold
    for who in map(identity_of, network.roster.people()):
        if is_owner(who):
            return who
    member = await network.whois(owner.nick)
    who_now = identity_of(member) if member else None
    return who_now if who_now and is_owner(who_now) else None
