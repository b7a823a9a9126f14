"""Fetching a large file: resumed where it broke off, checked before it counts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import httpx2
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from agent_server.errors import PullError

BLOCK = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_sha256(path: Path, wanted: str) -> None:
    """Remove `path` and raise PullError unless its SHA-256 is `wanted` (hex, any case)."""
    found = sha256_of(path)
    if found != wanted.strip().lower():
        path.unlink()
        raise PullError(
            f"{path.name} is not the file that was asked for and was removed: "
            f"sha256 is {found}, wanted {wanted.strip().lower()}"
        )


def fetch(url: str, target: Path) -> Path:
    """Download `url` beside `target`; returns the finished `.part` file. Raises PullError.

    What an earlier attempt left in the `.part` file is asked for no more (RFC 9110, 14.2), as
    long as the server still has the same file.
    """
    part = target.with_name(f"{target.name}.part")
    have = part.stat().st_size if part.exists() else 0
    headers = {"accept-encoding": "identity"}
    if have:
        headers |= {"range": f"bytes={have}-"} | _if_unchanged(part)
    try:
        with (
            httpx2.Client(follow_redirects=True, timeout=60) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            _receive(response, part, have)
    except httpx2.HTTPError as error:
        raise PullError(f"{url} broke off: {error}; the same command goes on from there") from error
    except httpx2.InvalidURL as error:
        raise PullError(f"{url} is not a URL: {error}") from error
    _mark(part).unlink(missing_ok=True)
    return part


def _receive(response: httpx2.Response, part: Path, have: int) -> None:
    if response.status_code == 416 and _total(response) == have:
        return
    if response.status_code not in (200, 206):
        if response.status_code == 416:
            part.unlink()
        raise PullError(f"{response.url} answered {response.status_code}")
    begin = have if response.status_code == 206 else 0
    _require_range(response, begin)
    if tag := response.headers.get("etag"):
        _mark(part).write_text(tag, encoding="utf-8")
    size = int(response.headers.get("content-length", 0))
    with part.open("ab" if begin else "wb") as file, _bar() as bar:
        task = bar.add_task(part.stem, total=begin + size or None, completed=begin)
        for block in response.iter_bytes(BLOCK):
            file.write(block)
            bar.advance(task, len(block))


def _require_range(response: httpx2.Response, begin: int) -> None:
    if response.status_code == 206:
        match = _RANGE.match(response.headers.get("content-range", ""))
        if not match or int(match[1]) != begin:
            raise PullError(f"{response.url} sent another part of the file than was asked for")


def _total(response: httpx2.Response) -> int | None:
    total = str(response.headers.get("content-range", "")).rpartition("/")[2]
    return int(total) if total.isdecimal() else None


def _mark(part: Path) -> Path:
    return part.with_name(f"{part.name}.etag")


def _if_unchanged(part: Path) -> dict[str, str]:
    mark = _mark(part)
    tag = mark.read_text(encoding="utf-8") if mark.exists() else ""
    # A weak tag does not promise the same bytes (RFC 9110, 13.1.5).
    return {"if-range": tag} if tag.startswith('"') else {}


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
