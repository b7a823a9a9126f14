"""Host names and addresses of this machine.

A server without a key asks for such a name in the Host header too: a page on the web can point
its own name at 127.0.0.1 and would then be read as if it were ours (DNS rebinding).
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return True for a host name or address (IPv6 with or without brackets) of this machine."""
    name = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """Return the name in a Host header without the port, "" when it is malformed."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""
