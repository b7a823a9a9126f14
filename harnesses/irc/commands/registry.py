"""The table of commands on IRC, and the medium that they are given on."""

from __future__ import annotations

from collections.abc import Sequence

from harnesses.core.commands.request import FindCommand, Medium, ParsedCommand, PrivateReply, Reply
from harnesses.core.commands.table import CommandTable, commands_of
from harnesses.core.tendril.base import Tendril
from harnesses.irc.commands.admin import AdminCommands
from harnesses.irc.operators import OperatorCommands
from harnesses.irc.policy.requests import (
    IrcRequest,
    fold_place,
    identity_of,
    matches_any,
    payer_of,
    without_highlight,
)
from harnesses.irc.protocol.message import sanitize
from harnesses.irc.questions.handler import QuestionHandler
from harnesses.irc.questions.unasked import UnaskedAnswers
from harnesses.irc.services import BotServices
from storage.chat_log.event import Identity, Place, Scope


class IrcMedium(Medium[IrcRequest]):
    """IRC as its commands see it."""

    def __init__(
        self, services: BotServices, questions: QuestionHandler, unasked: UnaskedAnswers
    ) -> None:
        self._services, self._questions, self._unasked = services, questions, unasked

    @property
    def tendril(self) -> Tendril:
        """The tendril."""
        return self._services.tendril

    async def ask(self, request: IrcRequest, command: FindCommand) -> Reply:
        """Run the turn of a question, see `QuestionHandler.ask`."""
        return await self._questions.ask(request, command)

    async def reply(self, request: IrcRequest, reply: Reply) -> None:
        """Deliver a reply to the author of a request, unless it is empty."""
        await self._services.sender.reply(request, reply)

    def prefix(self, place: Place) -> str:
        """Return what commands begin with in a place."""
        return self._services.prefix(place)

    def nicks(self, request: IrcRequest) -> Sequence[str]:
        """Return our nicks on the network of a request, the present one first."""
        return request.network.nick, request.network.settings.nick

    def parse(self, text: str, nicks: Sequence[str], request: IrcRequest) -> ParsedCommand | None:
        """Parse what was said in the place of a request, without its colour codes."""
        return super().parse(sanitize(text), nicks, request)

    def shown_nick(self, nick: str) -> str:
        """Return a nick as it is shown without calling its owner."""
        return without_highlight(nick)

    def is_bridged(self, request: IrcRequest, who: Identity) -> bool:
        """Return whether somebody has the mask of a relay, or shares user name and host with one
        that is here."""
        network, relays = request.network, self._services.networks.settings.relays
        near = map(identity_of, network.roster.people())
        return any(
            matches_any(each, relays, network.fold)
            for each in (who, *near)
            if (each.user, each.host) == (who.user, who.host)
        )

    def members(self, request: IrcRequest) -> Sequence[str]:
        """Return the nicks of those in the place of a request, none in private."""
        if request.private and not request.network.is_channel(request.place.channel):
            return ()
        return request.network.roster.nicks(request.place.channel)

    def readable_scope(self, request: IrcRequest) -> Scope:
        """Return what the author of a request may read: in private also their channels."""
        return self._questions.log_views.readable_scope(request)

    def model(self, request: IrcRequest) -> str:
        """Return the name of the model in the place of a request."""
        return self._services.behaviours.resolve(request.place).model

    def persona(self, request: IrcRequest) -> str | None:
        """Return the name of the persona there, None for that of the tendril."""
        return self._services.behaviours.resolve(request.place).persona

    def keeps(self, request: IrcRequest) -> bool:
        """Return whether anything of a request may be remembered."""
        # Without an event on a logged channel the line itself was not kept, as with "[nolog]".
        hides = self._services.medium.log.opt_outs.opt_out_rules.hides_person
        logs = self._services.behaviours.resolve(request.place).logging
        is_kept_out = logs and request.pending_event.event is None
        return not (hides(request.network.name, request.who) or is_kept_out)

    @property
    def web_address(self) -> str | None:
        """The base URL of the web pages for people on these networks; None while they have none."""
        return self._services.web_address

    def payer(self, request: IrcRequest) -> str:
        """Return the name under which what an author asks is counted."""
        return payer_of(request.network, request.who)

    def stop(self, request: IrcRequest, nick: str) -> bool:
        """Stop what the author of a request, or `nick`, has asked in its place; return whether
        there was anything."""
        return self._questions.stop(request, nick)

    async def clear(self, request: IrcRequest) -> int:
        """Delete the author's conversation, and forget their open question to everybody."""
        place = fold_place(request.network, request.place.channel)
        self._unasked.attention.drop(place, request.fold(request.nick))
        return await super().clear(request)

    async def more(self, request: IrcRequest) -> Reply:
        """Send the rest of a long answer, or return what there is to say instead."""
        sender = self._services.sender
        if request.place in sender.streaming.values():
            return PrivateReply("The answer is still being written; ask again when it is finished.")
        if await sender.send_more(sender.target_of(request)):
            return ""
        return await super().more(request)


class Commands(CommandTable[IrcRequest]):
    """The commands on IRC: those of every medium, and those of admins.

    `of_operators` are those of them that channel operators have with other bots too.
    """

    def __init__(
        self, services: BotServices, questions: QuestionHandler, unasked: UnaskedAnswers
    ) -> None:
        operators = commands_of(OperatorCommands(services))
        self.of_operators = operators.keys()
        self.medium = IrcMedium(services, questions, unasked)
        super().__init__(self.medium, commands_of(AdminCommands(services, unasked)) | operators)
