"""Queries about clients and the server: WHO, WHOIS, USERHOST, ISON, MOTD."""

from __future__ import annotations

import time

from harnesses.irc.ircd.server import Client, Server, command
from harnesses.irc.protocol.message import Message


@command("WHO")
def _who(server: Server, client: Client, message: Message) -> None:
    mask = message.param(0)
    channel, person = server.find_channel(mask), server.client(mask)
    for found in list(channel.members) if channel else [person] if person else []:
        flags = ("G" if found.away else "H") + (channel.symbol(found) if channel else "")
        where, source = channel.name if channel else "*", found.source
        names = (source.user or "*", source.host or "*", server.source.nick, found.nick)
        client.reply("352", where, *names, flags, f"0 {found.data['realname']}")
    client.reply("315", mask, "End of WHO list")


@command("WHOIS", needs=1)
def _whois(server: Server, client: Client, message: Message) -> None:
    nick = message.params[-1]
    person = server.client(nick)
    if not person or not person.registered:
        client.reply("401", nick, "No such nick/channel")
    else:
        source = person.source
        names = (source.nick, source.user or "*", source.host or "*", "*")
        client.reply("311", *names, person.data["realname"])
        if rooms := server.channels_of(person):
            client.reply(
                "319", nick, " ".join(channel.symbol(person) + channel.name for channel in rooms)
            )
        client.reply("312", nick, server.source.nick, "Terrarium")
        if person.away:
            client.reply("301", nick, person.away)
        idle = str(int(time.time() - person.data["data_received"]))
        client.reply("317", nick, idle, str(person.data["signon"]), "seconds idle, signon time")
    client.reply("318", nick, "End of WHOIS list")


@command("USERHOST", needs=1)
def _userhost(server: Server, client: Client, message: Message) -> None:
    found = [server.client(nick) for nick in message.params]
    shown = (
        f"{c.nick}={'-' if c.away else '+'}{c.source.user}@{c.source.host}"
        for c in found
        if c and c.registered
    )
    client.reply("302", " ".join(shown))


@command("ISON", needs=1)
def _ison(server: Server, client: Client, message: Message) -> None:
    nicks = " ".join(message.params).split()
    client.reply("303", " ".join(nick for nick in nicks if server.client(nick)))


@command("MOTD")
def _motd(server: Server, client: Client, message: Message) -> None:
    server.motd(client)
