"""Model names by purpose: the server's aliases, checked before they are used.

`fast` is for background work (summaries, facts), `smart` for questions that the usual model has
no good answer to. A server has these names when its table of models does ([model] aliases); each
method returns "" in place of a name that it does not have, which everywhere means the configured
model:

    options = RequestOptions(session, "background", await models.fast(), purpose="summary")
    if smart := await models.smart(): ...  # escalate; there is something to escalate to
    options = RequestOptions(session, model=await models.resolve(name))  # somebody's choice
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from llm.client.client import AgentClient
from llm.client.response import ModelCard
from llm.messages.errors import ModelError, RequestRejected

FAST, SMART = "fast", "smart"

_FRESH = 60.0  # seconds for which an answer of the server is taken to be true
_UNSETTLED = 3.0  # the same, of a card that does not yet say all
_MOST = 100  # names; people choose them

_log = structlog.get_logger()


class ModelCatalog:
    """The names that the server of `client` has; `default` is the configured one's at the
    moment."""

    def __init__(self, client: AgentClient, default: Callable[[], str]) -> None:
        self._client = client
        self._default = default
        self._cards: dict[str, tuple[float, ModelCard | None]] = {}
        self._missed: set[str] = set()

    async def fast(self) -> str:
        """Return the model for background work."""
        return FAST if await self._other(FAST) else ""

    async def smart(self) -> str:
        """Return the model worth a second try, unless it is the configured one by another name."""
        card, usual = await self._other(SMART), await self._card(self._default())
        same = card and usual and card.root and card.root == usual.root
        return SMART if card and not same else ""

    async def resolve(self, name: str) -> str:
        """Return a model that somebody chose; log once when the server has none of that name."""
        if not name or name == self._default() or await self._card(name):
            self._missed.discard(name)
            return "" if name == self._default() else name
        if name not in self._cards:
            return name  # the server is away: its answer will tell
        if name not in self._missed:
            self._missed.add(name)
            _log.warning("models.unknown", model=name, asked_instead=self._default())
        return ""

    async def card(self, name: str = "") -> ModelCard | None:
        """Return what the server last said of a model (by default the configured one); None when
        it has none of that name, or was never reached."""
        return await self._card(name or self._default())

    async def supports_tools(self, name: str = "") -> bool:
        """Return if a model is known to decide well by itself when to use a tool."""
        return bool(await self.tool_judgement(name))

    async def tool_judgement(self, name: str = "") -> bool | None:
        """Return if a model decides well by itself when to use a tool; None as long as the server
        was not reached or has not tested it. One that answers and describes no models is taken
        to have a model that does."""
        name = name or self._default()
        card = await self._card(name)
        if card is None:
            return True if name in self._cards else None
        return card.chooses_tools

    async def shown_name(self, name: str = "") -> str:
        """Return what people are told of a model: the name that an alias stands for."""
        card = await self._card(name or self._default())
        return (card.weights or card.root or card.id) if card else name or self._default()

    async def _other(self, name: str) -> ModelCard | None:
        return None if name == self._default() else await self._card(name)

    async def _card(self, name: str) -> ModelCard | None:
        """Return the last card of a name; while the server is away, the one before."""
        now = asyncio.get_running_loop().time()
        asked, card = self._cards.get(name, (-_FRESH, None))
        settled = card is None or card.chooses_tools is not None
        if now - asked < (_FRESH if settled else _UNSETTLED):
            return card
        try:
            card = await self._client.model(name)
        except RequestRejected:
            card = None  # a server that says nothing of models by their names
        except ModelError:
            return card
        if len(self._cards) >= _MOST:
            self._cards.clear()
        self._cards[name] = (now, card)
        return card
