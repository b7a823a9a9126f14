"""Hostile addresses and servers: refused, each for its reason, and nothing on loopback reached."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from dataclasses import replace

import pytest

from llm.web.addresses import AddressPolicy
from llm.web.errors import PageError, PageRefused, PageUnreadable
from llm.web.fetcher import Fetcher
from tests.kit.page_server import LIMITS, NO_LIMITS, PageServer, page, page_server, redirect
from tests.kit.patience import PATIENCE
from tests.kit.tables import rows

NOT_PUBLIC = "not one of the public internet"
NO_NAME = "no public name"
TOO_LATE = "did not come within 1 seconds"

# {port} is that of a listener on loopback, which must see no connection.
ADDRESSES = [
    *rows("llm/web/hostile.txt"),
    ("a blank or a backslash", "http://good.example\\@127.0.0.1:{port}/"),
    ("a blank or a backslash", "http://good.example\t@127.0.0.1:{port}/"),
    ("a blank or a backslash", "http://good.example/\r\nHost: 127.0.0.1"),
    ("more than 2000 characters", "http://good.example/" + "a" * 2_000),
]


async def refusal(fetcher: Fetcher, url: str) -> str:
    """Return for which reason a page is not read."""
    with pytest.raises(PageError) as caught:
        await fetcher.fetch(url)
    return str(caught.value)


async def test_an_address_inside_is_refused_and_not_connected_to(site: PageServer) -> None:
    site.names = {
        "mixed.example": ["93.184.216.34 127.0.0.1"],
        "inside.example": ["127.0.0.1"],
        "mapped.example": ["::ffff:127.0.0.1"],
    }
    for reason, url in ADDRESSES:
        ports = None if "{port}" in url else AddressPolicy().ports
        fetcher = Fetcher(AddressPolicy(ports=ports), site.resolve, LIMITS)
        with pytest.raises(PageRefused) as caught:
            await fetcher.fetch(url.format(port=site.port))
        assert reason.strip("-") in str(caught.value), url
        assert "127.0.0.1" not in str(caught.value)
        assert site.connections == 0


async def test_each_redirect_is_checked_as_the_first_address_was(site: PageServer) -> None:
    async with page_server(address="127.0.0.2") as inside:
        site.answers = {
            "a.example/": redirect("http://b.example/next"),
            "b.example/next": page("<p>there"),
            "c.example/": redirect(f"http://127.0.0.2:{inside.port}/"),
            "d.example/": redirect(f"//[::ffff:7f00:2]:{inside.port}/"),
            "e.example/": redirect("file:///etc/passwd"),
            "f.example/": redirect("http://inside.example/"),
        }
        site.names["inside.example"] = ["127.0.0.2"]
        fetcher = site.fetcher()
        assert (await fetcher.fetch("http://a.example/")).url == "http://b.example/next"
        reasons = {host: await refusal(fetcher, f"http://{host}.example/") for host in "cdef"}
        assert "only http and https" in reasons.pop("e")
        assert all(NOT_PUBLIC in reason for reason in reasons.values())
        assert inside.connections == 0


async def test_a_name_that_is_bound_anew_is_connected_to_where_it_was_checked(
    site: PageServer,
) -> None:
    async with page_server(address="127.0.0.2", port=site.port) as inside:
        site.answers = {"rebound.example/": page("<p>1"), "rebound.example/2": page("<p>2")}
        site.names["rebound.example"] = ["127.0.0.1", "127.0.0.2"]
        fetcher = site.fetcher()
        assert (await fetcher.fetch("http://rebound.example/")).text == "<p>1"
        assert site.requests == ["rebound.example/robots.txt", "rebound.example/"]
        assert NOT_PUBLIC in await refusal(fetcher, "http://rebound.example/2")
        assert inside.connections == 0


async def test_robots_txt_may_not_lead_inside_either(site: PageServer) -> None:
    site.answers["a.example/robots.txt"] = redirect("http://10.0.0.1/")
    assert NOT_PUBLIC in await refusal(site.fetcher(), "http://a.example/")
    assert site.requests == ["a.example/robots.txt"]


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
    while True:
        writer.write(b"<p>more " * 1_000)
        await writer.drain()


async def endless_header(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: " + b"y" * 8_000 + b"\r\n")
        await writer.drain()


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def slow(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>")
    await writer.drain()
    await asyncio.Event().wait()


def bomb() -> bytes:
    """Return 50 MB of blanks in some 50 kB."""
    return page(gzip.compress(b" " * 50_000_000), Content_Encoding="gzip")


SERVERS = [
    (endless, "larger than 0.1 MB"),
    (endless_header, "did not answer"),
    (silent, TOO_LATE),
    (slow, TOO_LATE),
    (bomb(), "larger than 0.1 MB"),
    (page("x" * 100_001), "larger than 0.1 MB"),
    (page(zlib.compress(b"x"), Content_Encoding="br"), "compression is not known"),
    (page(b"no gzip", Content_Encoding="gzip"), "compression is broken"),
    (page(b"MZ", "application/x-msdownload"), "application/x-msdownload, which is not read"),
    (page(b"%PDF", "application/pdf"), "application/pdf, which is not read"),
    (page(b"GIF89a", "image/gif"), "it is a picture, and pictures cannot be looked at here"),
    (page(b"\0" * 9, "video/mp4"), "video/mp4, which is not read"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "of no type"),
    (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "answered 500"),
    (b"SSH-2.0-OpenSSH_9.9\r\n", "did not answer"),
    (b"", "did not answer"),
    (redirect("http://a.example/"), "redirects more than 5 times"),
    (redirect("http://["), NO_NAME),
    (redirect("http://a.example:port/"), "redirects to no address"),
]


@pytest.mark.parametrize(("answer", "reason"), SERVERS)
async def test_a_server_that_misbehaves_is_left(
    site: PageServer, answer: object, reason: str
) -> None:
    site.answers["a.example/"] = answer  # type: ignore[assignment]
    limits = LIMITS if reason == TOO_LATE else replace(LIMITS, time=PATIENCE)
    assert reason in await refusal(site.fetcher(limits), "http://a.example/")


async def test_of_a_long_robots_txt_500_kib_are_obeyed(site: PageServer) -> None:
    rule = "Disallow: /private/\n"
    filling = "User-agent: *\n".ljust(500 * 1024 - len(rule) - 1, "#") + "\n"
    site.answers = {
        "a.example/robots.txt": page(f"{filling}{rule}Disallow: /open\n", "text/plain"),
        "a.example/private/x": page("<p>secret"),
        "a.example/open": page("<p>open"),
    }
    fetcher = site.fetcher(NO_LIMITS)
    assert "robots.txt" in await refusal(fetcher, "http://a.example/private/x")
    assert (await fetcher.fetch("http://a.example/open")).text == "<p>open"


async def test_robots_txt_is_obeyed_and_read_once(site: PageServer) -> None:
    rules = "User-agent: *\nDisallow: /\n\nUser-agent: Terrarium\nDisallow: /private/\n"
    site.answers = {
        "a.example/robots.txt": page(rules, "text/plain"),
        "a.example/private/x": page("<p>secret"),
        "a.example/open": page("<p>open"),
        "b.example/robots.txt": b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
    }
    fetcher = site.fetcher()
    reason = await refusal(fetcher, "http://a.example/private/x")
    assert "robots.txt of a.example" in reason
    assert (await fetcher.fetch("http://a.example/open")).text == "<p>open"
    assert (await fetcher.fetch("http://a.example/open#part")).text == "<p>open"
    assert site.requests == ["a.example/robots.txt", "a.example/open"]
    with pytest.raises(PageUnreadable, match=r"robots\.txt of b\.example cannot be read"):
        await fetcher.fetch("http://b.example/")
