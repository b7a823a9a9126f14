"""Network of two InspIRCd servers, a hub and a leaf, which a test can split and link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.ircd import OPERATORS, Ircd, inspircd
from tests.kit.ports import free_port

_HUB, _LEAF = "inspircd.test", "leaf.test"
_LINK = """\
<module name="spanningtree">
<bind address="127.0.0.1" port="{}" type="servers">
<link name="{}" ipaddr="127.0.0.1" allowmask="127.0.0.1" port="{}" sendpass="link" recvpass="link">
"""


@dataclass(frozen=True, slots=True)
class Hub:
    """The hub, with an operator on it who splits and links the network."""

    ircd: Ircd
    operator: IrcClient
    ports: tuple[int, int]

    @asynccontextmanager
    async def leaf(self) -> AsyncIterator[Ircd]:
        """Run a leaf server that is linked to the hub."""
        own, other = self.ports
        async with inspircd(extra=_LINK.format(other, _HUB, own), name=_LEAF) as server:
            await self.link()
            yield server

    async def link(self) -> None:
        """Link the servers; return when they have exchanged their state (netburst)."""
        linked = "Received end of netburst"
        while True:
            await self.operator.send(f"CONNECT {_LEAF}")
            found = await self.operator.expect(f"LINK: .*(failed with error|{linked})")
            if found[1] == linked:
                return
            await asyncio.sleep(0.1)  # the leaf has not noticed the split yet

    async def split(self) -> None:
        """Split the leaf from the hub with SQUIT."""
        await self.operator.send(f"SQUIT {_LEAF} :a split")
        await self.operator.expect(r"LINK: Connection to .* was established for")


@asynccontextmanager
async def hub() -> AsyncIterator[Hub]:
    """Run a hub without a leaf."""
    ports = own, other = free_port(), free_port()
    extra = OPERATORS + _LINK.format(own, _LEAF, other)
    async with (
        inspircd(extra=extra, name=_HUB) as server,
        irc_client(server.port, "linker") as operator,
    ):
        await operator.become_operator()
        await operator.send("MODE linker +s +lL")
        yield Hub(server, operator, ports)
