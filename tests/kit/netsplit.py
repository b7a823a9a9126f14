"""Two InspIRCd servers that are one network: a hub, and a leaf that a test can let die."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.kit.ircd import Ircd, inspircd
from tests.kit.ports import free_port

_HUB, _LEAF = "inspircd.test", "leaf.test"
_LINK = """\
<link name="{}" ipaddr="127.0.0.1" allowmask="127.0.0.1" port="{}" sendpass="link" recvpass="link">
"""
_SPANNING = '<module name="spanningtree">\n'


@dataclass(frozen=True, slots=True)
class Hub:
    """The server that stays."""

    ircd: Ircd
    link_port: int

    @asynccontextmanager
    async def leaf(self) -> AsyncIterator[Ircd]:
        """A server that links to the hub within a second or two of its start."""
        extra = _SPANNING + _LINK.format(_HUB, self.link_port)
        extra += f'<autoconnect period="1" server="{_HUB}">\n'
        async with inspircd(extra=extra, name=_LEAF) as server:
            yield server


@asynccontextmanager
async def hub(more: str = "") -> AsyncIterator[Hub]:
    """A hub, without leaves; `more` comes first in its file."""
    port = free_port()
    extra = more + _SPANNING + _LINK.format(_LEAF, 1)
    extra += f'<bind address="127.0.0.1" port="{port}" type="servers">\n'
    async with inspircd(extra=extra, name=_HUB) as server:
        yield Hub(server, port)
