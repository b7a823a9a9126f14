"""Names and addresses that mean this machine.

A server without a key asks for such a name in the Host header too: a page on the web can point
its own name at 127.0.0.1 and would then be read as if it were ours (DNS rebinding).
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host name or an address (IPv6 with or without brackets) means this machine."""
    name = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The name in a Host header, without the port; empty when it is none."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""
