"""Host names and addresses of this machine.

A server without a key requires such a name in the Host header too. Otherwise a page on the web
could point its own name at 127.0.0.1, and its scripts could read the answers of this server as
those of their own site (DNS rebinding).
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return whether a host name or address (IPv6 with or without brackets) is of this machine."""
    name = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """Return the host in a Host header without the port, "" if the header is malformed."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""
