"""Tendril in rooms of Matrix: answers grow by edits, in the thread of their question."""

from __future__ import annotations

import asyncio
from typing import Any

import nio
from aiohttp import ClientError
from pydantic import Field, SecretStr

from terrarium import ChatTendril, Identity, LoggedLine, Place, Settings


class MatrixSettings(Settings):
    """The table [matrix] of terrarium.toml."""

    table = "matrix"

    homeserver: str = Field("", description="the address of its API: https://matrix.example.org")
    token: SecretStr = Field(SecretStr(""), description="of the account; better MATRIX_TOKEN")
    rooms: tuple[str, ...] = Field((), description='the rooms to join: ["#pond:example.org"]')
    admins: tuple[str, ...] = Field((), description='their accounts: ["@ada:example.org"]')


class MatrixTendril(ChatTendril):
    """Talks in the `rooms`, which are public channels of the log, and with whoever invites it to a
    room for two."""

    name = "matrix"

    async def serve(self) -> None:
        self.settings = self.config.section(MatrixSettings)
        self.channels: dict[str, str] = {}  # the ids of the rooms, by the names of the channels
        if not (self.settings.homeserver and self.settings.token):
            self.status.report_trouble("set homeserver and token in the table [matrix]")
            await asyncio.Event().wait()
        self.matrix = nio.AsyncClient(
            self.settings.homeserver, config=nio.AsyncClientConfig(max_timeouts=1)
        )
        self.matrix.access_token = self.settings.token.get_secret_value()
        self.matrix.add_event_callback(self.on_invite, nio.InviteMemberEvent)
        try:
            while True:
                try:
                    await self.sync()
                except (ClientError, TimeoutError) as error:
                    self.status.waiting(f"the server cannot be reached: {type(error).__name__}")
                    await asyncio.sleep(5)
        finally:
            await self.matrix.close()

    async def sync(self) -> None:
        """Wait for events, which are passed to the callbacks; at first join the rooms."""
        if not self.matrix.next_batch:
            await self.succeed(self.matrix.whoami())
            self.me: str = self.matrix.user_id
            name = await self.matrix.get_displayname()
            self.nick = getattr(name, "displayname", None) or self.identity(self.me).nick
            for alias in self.settings.rooms:
                # No channel's name has a colon; those of other servers are #room@server.
                channel = alias.removesuffix(self.me[self.me.index(":") :]).replace(":", "@")
                self.channels[channel] = (await self.succeed(self.matrix.join(alias))).room_id
            await self.succeed(self.matrix.sync(full_state=True))
            self.matrix.add_event_callback(self.on_event, nio.Event)
        self.status.ready(f"in {', '.join(self.channels) or 'no room'} as {self.me}")
        await self.succeed(self.matrix.sync(timeout=30_000))

    async def succeed(self, request: Any) -> Any:
        """Make a request until the server grants it."""
        response = await request
        if isinstance(response, nio.ErrorResponse):
            self.status.report_trouble(f"{self.settings.homeserver} says {response}")
            raise ClientError
        self.status.report_trouble("")
        return response

    async def on_invite(self, room: nio.MatrixInvitedRoom, event: nio.InviteMemberEvent) -> None:
        if event.state_key == self.me and event.content.get("is_direct") is True:
            await self.matrix.join(room.room_id)

    def on_event(self, room: nio.MatrixRoom, event: nio.Event) -> None:
        # Spawned, as people may send anything: then an error ends nothing else.
        match event:
            case nio.RoomMessage():
                self.spawn(self.take_message(room, event))
            case nio.RoomMemberEvent():
                self.spawn(self.take_member(room, event))
            case nio.RedactionEvent() if place := self.place_of(room, event.sender):
                self.spawn(self.privacy.redact(place, event.redacts))
            case nio.MegolmEvent():
                trouble = f"{room.machine_name} is encrypted: I cannot read it"
                self.status.report_trouble(trouble, about="encryption")

    async def take_member(self, room: nio.MatrixRoom, event: nio.RoomMemberEvent) -> None:
        """Log that somebody has come or gone."""
        place, who = self.place_of(room, event.state_key), self.identity(event.state_key)
        was, is_there = event.prev_membership == "join", event.membership == "join"
        if place and place.channel in self.channels and is_there != was:
            self.note_join(place, who) if is_there else self.note_leave(place, who)

    async def take_message(self, room: nio.MatrixRoom, event: nio.RoomMessage) -> None:
        """Take what somebody has said, unless it corrects a message."""
        content = event.source["content"]
        relation, mentions = content.get("m.relates_to", {}), content.get("m.mentions", {})
        place, kind = self.place_of(room, event.sender), relation.get("rel_type")
        is_ours = event.sender == self.me or isinstance(event, nio.RoomMessageNotice)  # or a bot's
        if place is None or is_ours or kind == "m.replace":
            return
        self.hear(
            place,
            self.identity(event.sender),
            content["body"],
            asked=self.me in mentions.get("user_ids", ()),
            msgid=event.event_id,
            thread=relation["event_id"] if kind == "m.thread" else "",
        )

    def identity(self, account: str) -> Identity:
        """Return who has an account. A display name may be anything, so the nick is that of the
        account, with its server if that is another one."""
        own_server = self.me[self.me.index(":") :]
        return Identity(account.removeprefix("@").removesuffix(own_server), account=account)

    def place_of(self, room: nio.MatrixRoom, account: str) -> Place | None:
        """Return the place of a room: a channel or, if it is for two, that of the account."""
        for channel, known in self.channels.items():
            if known == room.room_id:
                return self.log.place(channel)
        private = self.log.place(self.identity(account).room(str.lower))
        return private if self.room_of(private) == room.room_id else None

    def room_of(self, place: Place) -> str | None:
        """Return the id of a room. In one for two nobody else is, or has been invited."""
        if place.channel in self.channels:
            return self.channels[place.channel]
        both, channels = {place.channel, f"~{self.me}"}, self.channels.values()
        for name, room in self.matrix.rooms.items():
            if name not in channels and {f"~{each.lower()}" for each in room.users} == both:
                return str(name)
        return None

    def members(self, place: Place) -> list[str]:
        room = self.matrix.rooms.get(self.channels.get(place.channel))
        people = room.users.items() if room else ()
        return sorted(self.identity(who).nick for who, user in people if not user.invited)

    def rights(self, who: Identity) -> set[str]:
        return {"admin"} if who.account in self.settings.admins else set()

    def address(self, line: LoggedLine) -> str:
        return ""  # the reply mentions whom it answers

    async def send(self, place: Place, text: str, line: LoggedLine | None, alone: bool) -> str:
        own = self.room_of(self.log.place(line.who.room(str.lower))) if line and alone else None
        content: dict[str, Any] = {"msgtype": "m.notice", "body": text}
        if line and not own:
            relation = {"rel_type": "m.thread", "event_id": line.thread} if line.thread else {}
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": line.msgid}, **relation}
            content["m.mentions"] = {"user_ids": [line.who.account]}
        return await self.put(own or self.room_of(place), content)

    async def edit(self, place: Place, message: str, text: str) -> bool:
        new = {"msgtype": "m.notice", "body": text}
        relation = {"rel_type": "m.replace", "event_id": message}
        content = {**new, "m.new_content": new, "m.relates_to": relation}
        return bool(await self.put(self.room_of(place), content))

    async def put(self, room: str | None, content: dict[str, Any]) -> str:
        """Send a message; return its id, "" if that is not possible."""
        try:
            sent = room and await self.matrix.room_send(room, "m.room.message", content)
        except (ClientError, TimeoutError):
            return ""
        return getattr(sent, "event_id", "")

    async def typing(self, place: Place, is_on: bool) -> None:
        await self.matrix.room_typing(self.room_of(place), is_on, timeout=5_000)

    async def image(self, line: LoggedLine) -> bytes | None:
        """Return the image in a message, or in the one that it replies to."""
        room, found = self.room_of(line.place), line.msgid
        while found:
            event = getattr(await self.matrix.room_get_event(room, found), "event", None)
            if isinstance(event, nio.RoomMessageImage):
                return getattr(await self.matrix.download(event.url), "body", None)
            relation = event.source["content"].get("m.relates_to", {}) if event else {}
            found = relation.get("m.in_reply_to", {}).get("event_id") if found == line.msgid else ""
        return None
