"""Public addresses: the only ones that a page is fetched from.

A person on a channel chooses the URL and we make the request, from inside our network. So nothing
is fetched from an address that people outside could not reach themselves: the machine's own, the
local network's, and those that lead there under another notation.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

IPAddress = IPv4Address | IPv6Address

_UNICAST = IPv6Network("2000::/3")  # all that IANA gives out for the public internet
_RELAYS = tuple(
    ip_network(each)
    for each in (
        "192.88.99.0/24",  # 6to4 relays
        "2001::/23",  # protocol assignments, among them Teredo
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",  # documentation
    )
)
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # bits 64 to 95, before an IPv4 address
_NO_NAMES = frozenset(("arpa", "home", "internal", "invalid", "lan", "local", "localhost", "onion"))
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PORTS = frozenset((80, 443, 8000, 8080, 8443))


class Endpoint(NamedTuple):
    """The numeric address and the port that a connection goes to."""

    address: str
    port: int


Resolve = Callable[[str, int], Awaitable[Sequence[Endpoint]]]
"""Returns the endpoints of a host name and port. Raises OSError."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The rules for the address of a page. The default is the one to use; a program that fetches
    from a server of its own may name more addresses, and None for any port."""

    allowed: frozenset[IPAddress] = frozenset()
    ports: frozenset[int] | None = field(default=_PORTS)

    def is_public(self, address: str) -> bool:
        """Return if an address in numbers is one of the public internet, or allowed."""
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        return ip in self.allowed or (_is_public(ip) and not _is_own(ip))

    def has_port(self, port: int) -> bool:
        """Return if pages are fetched from that port: those of other services are left alone."""
        return self.ports is None or port in self.ports


def is_host_name(host: str) -> bool:
    """Return if a host, in ASCII, is a name of the public DNS. A name of one label, or one whose
    last label is a number in any notation, is an address or a machine of the local network."""
    labels = host.removesuffix(".").lower().split(".")
    last = labels[-1]
    return (
        len(labels) > 1
        and all(_LABEL.fullmatch(label) for label in labels)
        and not last[0].isdigit()
        and last not in _NO_NAMES
    )


async def resolve(host: str, port: int) -> Sequence[Endpoint]:
    """Return the endpoints of a host by the system's resolver. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Endpoint(str(sockaddr[0]), int(sockaddr[1])) for *_, sockaddr in found]


def _is_public(ip: IPAddress) -> bool:
    if any(ip.version == relay.version and ip in relay for relay in _RELAYS):
        return False
    if isinstance(ip, IPv6Address):
        if ip not in _UNICAST or (int(ip) >> 32) & 0xFFFF_FFFF in _ISATAP or ip.scope_id:
            return False
    elif ip.is_reserved:
        return False
    return ip.is_global and not ip.is_multicast


def _is_own(ip: IPAddress) -> bool:
    """Return if a public address is this machine's: a packet to it would leave from it. What
    listens there may be closed to all others."""
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(ip), 9))  # sends nothing
            return ip_address(probe.getsockname()[0]) == ip
    except OSError:  # no way there
        return False
