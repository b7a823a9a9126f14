"""Tendril in an XMPP room (XEP-0045): logs messages and answers those that begin "Terra:"."""

from __future__ import annotations

import asyncio

from pydantic import Field, SecretStr
from slixmpp import JID, ClientXMPP, Message, Presence
from slixmpp.exceptions import IqError, IqTimeout, PresenceError

from terrarium import ChatTendril, Identity, LoggedLine, Place, Settings

OCCUPANT_ID = "urn:xmpp:occupant-id:0"
PATIENCE = 30.0  # seconds for joining


class XmppSettings(Settings):
    """The table [xmpp] of terrarium.toml."""

    table = "xmpp"

    jid: str = Field("", description="the account, as terra@example.org")
    password: SecretStr = Field(SecretStr(""), description="its password; better XMPP_PASSWORD")
    room: str = Field("", description="the room, as pond@rooms.example.org")
    nick: str = Field("Terra", min_length=1, description="the name in the room")
    host: str = Field("", description="the server's address; unset: found by DNS")
    port: int = Field(5222, ge=1, le=65535, description="its port, where there is a host")
    tls: bool = Field(True, description="false only for a server on this machine")


class XmppTendril(ChatTendril):
    """Connects one room, which is the channel #ROOM of the network "xmpp" in the log."""

    name = "xmpp"

    async def serve(self) -> None:
        self.settings = self.config.section(XmppSettings)
        if not (self.settings.jid and self.settings.room):
            self.status.report_trouble("set jid and room in the table [xmpp]")
            await asyncio.Event().wait()
        self.nick, self.channel = self.settings.nick, f"#{self.settings.room.partition('@')[0]}"
        while True:
            await self.connected()
            self.status.waiting("the connection was lost; it is made again")
            await asyncio.sleep(5)

    async def connected(self) -> None:
        """Connect and join the room; return when the connection is lost."""
        settings = self.settings
        self.xmpp = client = ClientXMPP(settings.jid, settings.password.get_secret_value())
        # Rooms, typing, pings, delayed messages, corrections.
        for plugin in ("xep_0045", "xep_0085", "xep_0199", "xep_0203", "xep_0308"):
            client.register_plugin(plugin)
        # With TLS, which is the default, never authenticate over an unencrypted connection.
        client.enable_direct_tls = client.enable_starttls = settings.tls
        client.enable_plaintext = not settings.tls
        client.plugin["feature_mechanisms"].unencrypted_scram = not settings.tls
        client.add_event_handler("session_start", self.join)
        client.add_event_handler("groupchat_message", self.on_message)
        client.add_event_handler(f"muc::{settings.room}::got_online", self.on_online)
        client.add_event_handler(f"muc::{settings.room}::got_offline", self.on_offline)
        client.add_event_handler("failed_all_auth", self.on_refused)
        client.add_event_handler("connection_failed", self.on_unreachable)
        try:
            if settings.host:
                client.connect(settings.host, settings.port)
            else:
                client.connect()
            await client.disconnected
        finally:
            client.abort()

    async def join(self, _event: object) -> None:
        # Messages may arrive before the room has been asked what it supports.
        self.has_ids = self.is_inside = False
        self.xmpp.send_presence()
        rooms, settings = self.xmpp.plugin["xep_0045"], self.settings
        room = JID(settings.room)
        try:
            await rooms.join_muc_wait(room, settings.nick, maxstanzas=0, timeout=PATIENCE)
            found = await self.xmpp.plugin["xep_0030"].get_info(jid=room, timeout=PATIENCE)
            self.has_ids = OCCUPANT_ID in found["disco_info"]["features"]
        except (PresenceError, IqError, IqTimeout, TimeoutError) as error:
            self.status.report_trouble(f"cannot join {settings.room}: {reason(error)}")
            self.xmpp.disconnect()
            return
        self.is_inside = True
        self.status.report_trouble("")
        self.status.ready(f"in {settings.room} as {settings.nick}")

    async def on_refused(self, _event: object) -> None:
        self.status.report_trouble(f"the server refuses {self.settings.jid}; correct its password")

    async def on_unreachable(self, error: object) -> None:
        self.status.waiting(f"the server cannot be reached: {error}")

    async def on_message(self, message: Message) -> None:
        nick, text = message["mucnick"], message["body"]
        if text and nick and nick != self.nick and not message["delay"]["stamp"]:
            # Not subjects, our own messages, and the room's history (delayed messages).
            self.hear(self.channel, self.identity(message, nick), text)

    async def on_online(self, presence: Presence) -> None:
        if self.is_inside:  # not those who were there before us
            self.note_join(self.channel, self.identity(presence, presence["muc"]["nick"]))

    async def on_offline(self, presence: Presence) -> None:
        self.note_leave(self.channel, self.identity(presence, presence["muc"]["nick"]))

    def identity(self, stanza: Message | Presence, nick: str) -> Identity:
        """Return the sender's identity: their account if the room reveals it, else the occupant id
        that the room assigns (XEP-0421), else the bare nick, which anyone can take."""
        room, people = stanza["from"].bare, self.xmpp.plugin["xep_0045"]
        # Those who leave are no longer among the people of the room.
        is_presence = isinstance(stanza, Presence)
        jid = stanza["muc"]["jid"] if is_presence else people.get_jid_property(room, nick, "jid")
        if jid:
            return Identity(nick, account=jid.bare)
        given = stanza.xml.find(f"{{{OCCUPANT_ID}}}occupant-id")
        # Only a room that announces XEP-0421 removes ids forged by clients.
        if given is None or not self.has_ids:
            return Identity(nick)
        return Identity(nick, given.get("id", ""), room)

    def members(self, place: Place) -> list[str]:
        return sorted(self.xmpp.plugin["xep_0045"].get_roster(JID(self.settings.room)))

    def message(self, text: str = "") -> Message:
        return self.xmpp.make_message(JID(self.settings.room), text or None, mtype="groupchat")

    async def send(
        self, place: Place, text: str, line: LoggedLine | None, alone: bool
    ) -> bool | str:
        if place.channel != self.channel:
            return False
        message = self.message(text)
        message.send()
        return str(message["id"])

    async def edit(self, place: Place, message: str, text: str) -> bool:
        corrected = self.message(text)
        corrected["replace"]["id"] = message
        corrected.send()
        return True

    async def typing(self, place: Place, is_on: bool) -> None:
        notice = self.message()
        notice["chat_state"] = "composing" if is_on else "active"
        notice.send()


def reason(error: Exception) -> str:
    """Return the stanza error condition of RFC 6120, or "no answer" for other errors."""
    return error.condition if isinstance(error, PresenceError | IqError) else "no answer"
