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

_UNICAST = IPv6Network("2000::/3")
"""IPv6 global unicast, from which IANA assigns all public addresses (RFC 4291). Outside are
loopback, fc00::/7 (unique local, among them the metadata servers of clouds), fe80::/10
(link-local), ff00::/8 (multicast), 64:ff9b:1::/48 (local NAT64, RFC 8215), and all notations of
IPv4 addresses."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""The exception: IPv4 addresses in networks without IPv4 (RFC 6052), which count themselves."""

_SPECIAL = tuple(
    ip_network(each)
    for each in (
        # The IANA IPv4 Special-Purpose Address Registry, whole, as of October 2025.
        "0.0.0.0/8",  # this network, RFC 791
        "10.0.0.0/8",  # private, RFC 1918
        "100.64.0.0/10",  # carrier-grade NAT, RFC 6598; metadata of Alibaba Cloud
        "127.0.0.0/8",  # loopback, RFC 1122
        "169.254.0.0/16",  # link-local, RFC 3927; metadata of most clouds
        "172.16.0.0/12",  # private, RFC 1918
        "192.0.0.0/24",  # protocol assignments, RFC 6890; metadata of Oracle Cloud
        "192.0.2.0/24",  # documentation, RFC 5737
        "192.31.196.0/24",  # AS112, RFC 7535
        "192.52.193.0/24",  # AMT, RFC 7450
        "192.88.99.0/24",  # 6to4 relays, RFC 7526
        "192.168.0.0/16",  # private, RFC 1918
        "192.175.48.0/24",  # AS112, RFC 7534
        "198.18.0.0/15",  # benchmarks, RFC 2544
        "198.51.100.0/24",  # documentation, RFC 5737
        "203.0.113.0/24",  # documentation, RFC 5737
        "240.0.0.0/4",  # reserved, and the broadcast address, RFC 1112 and 919
        # The part of the IANA IPv6 Special-Purpose Address Registry that is global unicast.
        "2001::/23",  # protocol assignments, RFC 2928, among them Teredo, RFC 4380
        "2001:db8::/32",  # documentation, RFC 3849
        "2002::/16",  # 6to4, an IPv4 address inside, RFC 3056
        "2620:4f:8000::/48",  # AS112, RFC 7534
        "3fff::/20",  # documentation, RFC 9637
        # In no registry of special purposes.
        "168.63.129.16/32",  # WireServer, host of every Azure machine, says Microsoft
        "224.0.0.0/4",  # multicast, RFC 5771
    )
)
"""Networks with no public web page, but perhaps services of this machine's network. This does not
rely on `is_global`, which differs between versions of Python."""

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
    `allowed` adds addresses, such as those of a server of one's own; `ports` None: any port."""

    allowed: frozenset[IPAddress] = frozenset()
    ports: frozenset[int] | None = field(default=_PORTS)

    def is_public(self, address: str) -> bool:
        """Return whether an address is allowed: public and not ours, or in `allowed`."""
        if not is_address(address):
            return False
        ip = ip_address(address)
        return ip in self.allowed or not (is_special(ip) or _is_own(_behind_nat64(ip)))


def is_address(host: str) -> bool:
    """Return whether a host is an IP address in its usual notation."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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


def _behind_nat64(ip: IPAddress) -> IPAddress:
    """Return the IPv4 address inside one for NAT64, any other address as it is."""
    is_nat64 = ip in _NAT64 and "%" not in str(ip)  # a zone belongs to link-local addresses only
    return IPv4Address(int(ip) & 0xFFFF_FFFF) if is_nat64 else ip


def is_special(ip: IPAddress) -> bool:
    """Return whether an address is none from which the public web is served."""
    ip = _behind_nat64(ip)
    if isinstance(ip, IPv6Address) and (
        ip not in _UNICAST or ip.scope_id or (int(ip) >> 32) & 0xFFFF_FFFF in _ISATAP
    ):
        return True
    return any(ip in network for network in _SPECIAL)


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
