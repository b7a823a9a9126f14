"""Text extraction from HTML pages, feeds and PDF files, in a child process.

Pages are untrusted, and a hostile one can keep a parser busy for minutes or exhaust the memory. The
child is killed when it exceeds its limits of time and memory, and parsing does not hold the GIL of
the process that talks with people. Run as a program, this module is that child: it reads a page
from standard input and writes JSON.
"""

from __future__ import annotations

import asyncio
import html
import io
import json
import re
import resource
import sys
from dataclasses import dataclass
from typing import Literal

from llm.web.errors import ExtraMissing, PageUnreadable

_CPU_SECONDS = 10  # of CPU time; twice as many of wall-clock time
_MAX_MEMORY = 1_500_000_000  # bytes of address space, most of them shared libraries
_EXTRA_MISSING_STATUS = 3  # exit status if the extra is not installed
_MAX_TEXT_LENGTH = 60_000  # characters of text that are kept
_MAX_ENTRIES, _MAX_SUMMARY_LENGTH = 30, 300  # entries of a feed, characters of the summary of each
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class Extracted:
    """The readable parts of a page; a missing one is empty."""

    title: str = ""
    author: str = ""
    date: str = ""
    site: str = ""
    description: str = ""
    text: str = ""


Kind = Literal["page", "feed", "pdf"]


async def extract(page: bytes, url: str, kind: Kind = "page") -> Extracted:
    """Return the parts of an HTML page, a feed or a PDF file. Raises PageUnreadable and
    ExtraMissing."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, url, kind),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(2 * _CPU_SECONDS):
            found, _ = await child.communicate(page)
    except TimeoutError as error:
        raise PageUnreadable("its text could not be taken out in time") from error
    finally:
        # Also on cancellation: the child must not survive the request.
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == _EXTRA_MISSING_STATUS:
        raise ExtraMissing
    if child.returncode:
        raise PageUnreadable("its text could not be taken out")
    return Extracted(**json.loads(found))


def main() -> None:
    """Read a page from standard input and write its parts as JSON."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    page, url, kind = sys.stdin.buffer.read(), *sys.argv[1:]
    parts: dict[str, str | None]
    try:
        if kind == "feed":
            import feedparser

            read = feedparser.parse(io.BytesIO(page))
            entries = []
            for each in read.entries[:_MAX_ENTRIES]:  # the first ones usually are the newest
                time = each.get("published") or each.get("updated") or ""
                summary = " ".join(html.unescape(_TAG.sub(" ", each.get("summary", ""))).split())
                head = f"{time} {each.get('title', '')}".strip()
                lines = head, each.get("link", ""), summary[:_MAX_SUMMARY_LENGTH]
                entries.append("\n".join(filter(None, lines)))
            text = "\n\n".join(entries)
            parts = {"title": read.feed.get("title"), "description": read.feed.get("subtitle")}
        elif kind == "pdf":
            import pypdf

            text, parts = "", {}
            for each in pypdf.PdfReader(io.BytesIO(page)).pages:
                text += f"{each.extract_text()}\n\n"
                if len(text) > _MAX_TEXT_LENGTH:
                    break
        else:
            import trafilatura

            found = trafilatura.extract(page, url=url, include_comments=False, favor_recall=True)
            text = found or ""
            about = trafilatura.extract_metadata(page, default_url=url)
            names = ("title", "author", "date", "description")
            parts = {name: getattr(about, name) for name in names} | {"site": about.sitename}
    except ImportError:
        sys.exit(_EXTRA_MISSING_STATUS)
    parts["text"] = text[:_MAX_TEXT_LENGTH]
    json.dump({name: part or "" for name, part in parts.items()}, sys.stdout)


if __name__ == "__main__":
    main()
