"""Address policy against server-side request forgery: pages are fetched from public addresses only.

Anybody on a channel can choose the URL of a request that this machine makes from inside its
network. So nothing is fetched from an address that outsiders could not reach themselves: this
machine, the local network, and addresses that lead there in another notation.
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

# IPv6 global unicast, from which IANA assigns all public addresses. This also excludes notations of
# IPv4 addresses that `is_global` may accept: ::ffff:0:0/96 (mapped) and 64:ff9b::/96 (NAT64).
_UNICAST = IPv6Network("2000::/3")
# Tunnels and the like, which `is_global` accepts for the most part.
_RELAYS = tuple(
    ip_network(each)
    for each in (
        "192.88.99.0/24",  # 6to4 relays
        "2001::/23",  # protocol assignments, among them Teredo
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",  # documentation
    )
)
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # bits 64 to 95, followed by an IPv4 address (RFC 5214)
_NO_NAMES = frozenset(("arpa", "home", "internal", "invalid", "lan", "local", "localhost", "onion"))
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PORTS = frozenset((80, 443, 8000, 8080, 8443))


class Endpoint(NamedTuple):
    """The numeric address and the port of a connection."""

    address: str
    port: int


Resolve = Callable[[str, int], Awaitable[Sequence[Endpoint]]]
"""Resolves a host name and port to endpoints. Raises OSError."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The addresses and ports that pages may be fetched from. The default is meant for production;
    `allowed` adds addresses, for a program that fetches from its own server, and `ports` None
    allows any port."""

    allowed: frozenset[IPAddress] = frozenset()
    ports: frozenset[int] | None = field(default=_PORTS)

    def is_public(self, address: str) -> bool:
        """Return whether a numeric address is allowed: public and not of this machine, or listed in
        `allowed`."""
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        return ip in self.allowed or (_is_public(ip) and not _is_own(ip))

    def has_port(self, port: int) -> bool:
        """Return whether pages may be fetched from a port. Other ports belong to other services,
        which a request could disturb."""
        return self.ports is None or port in self.ports


def is_host_name(host: str) -> bool:
    """Return whether an ASCII host is a name of the public DNS, and neither a local name nor an
    IPv4 address in an unusual notation."""
    labels = host.removesuffix(".").lower().split(".")
    last = labels[-1]
    # The system's resolver also takes "127.1", "0x7f.0.0.1" and "2130706433" for addresses. Their
    # last label begins with a digit, as that of no name in the public DNS.
    return (
        len(labels) > 1
        and all(_LABEL.fullmatch(label) for label in labels)
        and not last[0].isdigit()
        and last not in _NO_NAMES
    )


async def resolve(host: str, port: int) -> Sequence[Endpoint]:
    """Return the endpoints of a host from the system's resolver. Raises OSError."""
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
    """Return whether a public address belongs to this machine. Services that listen on it may be
    closed to outsiders by a firewall."""
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # A UDP connect sends nothing, it only selects the route and so the source address,
            # which is the destination itself if that is local.
            probe.connect((str(ip), 9))
            return ip_address(probe.getsockname()[0]) == ip
    except OSError:  # no route
        return False
