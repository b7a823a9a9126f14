"""Messages between clients: PRIVMSG, NOTICE, AWAY."""

from __future__ import annotations

from harnesses.irc.ircd.server import TARGETS, Client, Server, command
from harnesses.irc.protocol.message import Message


@command("PRIVMSG")
@command("NOTICE")
def _talk(server: Server, client: Client, message: Message) -> None:
    text, quiet = message.param(1), message.command == "NOTICE"
    if not text or not message.param(0):
        if not quiet:  # RFC 1459, section 4.4.2: a NOTICE never gets an automatic reply
            client.reply("412" if message.param(0) else "411", "Nothing to send")
        return
    for name in message.param(0).split(",")[:TARGETS]:
        channel, person = server.find_channel(name), server.client(name)
        if channel and channel.may_speak(client):
            line = Message(message.command, (channel.name, text), client.source)
            channel.send(line, but=client)
        elif person and person.registered:
            person.send(Message(message.command, (person.nick, text), client.source))
            if person.away and not quiet:
                client.reply("301", person.nick, person.away)
        elif not quiet:
            why = "Cannot send to channel" if channel else "No such nick/channel"
            client.reply("404" if channel else "401", name, why)


@command("AWAY")
def _away(server: Server, client: Client, message: Message) -> None:
    client.away = message.param(0)
    if client.away:
        client.reply("306", "You have been marked as being away")
    else:
        client.reply("305", "You are no longer marked as being away")
