"""The address by which visitors are told apart."""

from __future__ import annotations

import ipaddress

from starlette.requests import Request


def address_of(request: Request) -> str:
    """Return the client's address, as far as one visitor has it: of IPv6 the first 64 bits."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((int(address), 64), strict=False))
