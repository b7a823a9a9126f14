"""Where the web tendril shows pastes, as far as those who read a channel can open that."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from harnesses.core.addresses import table
from harnesses.core.status import State, report
from llm.loopback import is_loopback
from storage.config import Config


def paste_link(config: Config, servers: Iterable[str], token: str) -> str | None:
    """The address of a paste, or None while nobody could open it."""
    base = web_address(config, servers)
    return f"{base}/paste/{token}" if base else None


def web_address(config: Config, servers: Iterable[str]) -> str:
    """The address of the web tendril, "" while nobody could open it.

    `[web] public_url` is where people reach the web tendril. Without it there is an address only
    where the IRC servers are on this machine, and so are those who read. Either way the web
    tendril has to run.
    """
    web = report(config.data, "web")
    if web is None or not web.fresh or web.state is not State.READY:
        return ""
    base: str = table(config, "web").get("public_url") or ""
    if not base and all(map(is_loopback, servers)):
        base = web.detail if is_loopback(urlsplit(web.detail).hostname or "") else ""
    return base.rstrip("/")
