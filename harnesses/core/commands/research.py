"""The command that starts a research."""

from __future__ import annotations

from harnesses.core.commands.request import MediumCommands, PrivateReply, R, Reply
from harnesses.core.tendril.research import ResearchRequest


class ResearchCommands(MediumCommands[R]):
    """The command."""

    async def research(self, request: R) -> Reply:
        """research QUESTION|stop: take minutes to search the log, and pages where I may, and write
        a report with the lines that say it; alone: how far I am"""
        medium, service = self._medium, self._medium.tendril.research
        asked = ResearchRequest(
            question=request.words,
            requester=request.requester,
            payer=medium.payer(request),
            scope=medium.readable_scope(request),
            address=medium.web_address,
            prefix=medium.prefix(request.place),
            nicks=medium.nicks(request),
        )
        match request.words.lower().split():
            case []:
                return PrivateReply(await service.list_text(asked))
            case ["stop"]:
                place = await service.stop(asked)
                if place == request.place:
                    return "Stopped."
                return PrivateReply("Stopped." if place else "No research is running.")
        if not medium.keeps(request):
            return PrivateReply("Nothing you say here is stored, so I cannot write a report.")
        return await service.start(asked)
