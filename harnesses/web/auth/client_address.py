"""The client address as the key of rate limits and login delays."""

from __future__ import annotations

import ipaddress

from starlette.requests import Request


def address_of(request: Request) -> str:
    """Return the client's IPv4 address, or its IPv6 /64 network."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    # One visitor usually has a whole /64, and could evade limits by single address.
    return str(ipaddress.ip_network((int(address), 64), strict=False))
