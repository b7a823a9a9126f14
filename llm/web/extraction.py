"""The text of an HTML page, taken out in a child process.

A page is written by strangers, and a parser may be led into minutes of work or gigabytes. The child
is stopped when it exceeds its time or memory, and the process that talks with people does not wait
for its interpreter lock. Run as a program, this module is that child: HTML in, JSON out.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from dataclasses import dataclass

from llm.web.errors import ExtraMissing, PageUnreadable

_SECONDS = 10
_MEMORY = 1_500_000_000  # bytes of address space, most of them shared libraries
_MISSING = 3  # the exit status without the extra
_MOST = 60_000  # characters of text that are kept


@dataclass(frozen=True, slots=True)
class Extracted:
    """The readable parts of a page; what it does not have is empty."""

    title: str = ""
    author: str = ""
    date: str = ""
    site: str = ""
    description: str = ""
    text: str = ""


async def extract(html: bytes, url: str) -> Extracted:
    """Return the readable parts of an HTML page. Raises PageUnreadable and ExtraMissing."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(2 * _SECONDS):
            found, _ = await child.communicate(html)
    except TimeoutError as error:
        raise PageUnreadable("its text could not be taken out in time") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == _MISSING:
        raise ExtraMissing
    if child.returncode:
        raise PageUnreadable("its text could not be taken out")
    return Extracted(**json.loads(found))


def main() -> None:
    """Read HTML from standard input and write its parts as JSON."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        import trafilatura
    except ImportError:
        sys.exit(_MISSING)
    html, url = sys.stdin.buffer.read(), sys.argv[1]
    text = trafilatura.extract(html, url=url, include_comments=False, favor_recall=True) or ""
    about = trafilatura.extract_metadata(html, default_url=url)
    parts = {
        "title": about.title,
        "author": about.author,
        "date": about.date,
        "site": about.sitename,
        "description": about.description,
        "text": text[:_MOST],
    }
    json.dump({name: part or "" for name, part in parts.items()}, sys.stdout)


if __name__ == "__main__":
    main()
