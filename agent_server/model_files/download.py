"""Resumable download of a large file, verified before use.

A hub answers with a redirect to a signed URL on another host. The redirect's headers
`x-linked-size` and `x-linked-etag` carry the size and the SHA-256 of the file. They are compared
with the expected values before anything is written, and the finished file with them afterwards.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

from agent_server.errors import PullError

SPARE_BYTES = 64 << 20
"""Bytes of disk space that a download leaves free."""

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FULL_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RESUMABLE_HINT = "run the command again to resume"


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """The expected size in bytes and SHA-256 (hex) of a file; None is unknown."""

    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class FileHost:
    """A server of files: the `setting` that names it, for messages, the file with the
    `certificates` to trust (None for the usual ones), and the `login`, a name and a password."""

    setting: str
    certificates: str | None = None
    login: tuple[str, str] | None = None

    def client(self) -> httpx2.Client:
        """Return a client. Raises PullError if the certificates cannot be read."""
        verify: bool | ssl.SSLContext = True
        if self.certificates:
            try:
                verify = ssl.create_default_context(cafile=self.certificates)
            except OSError as error:
                raise PullError(f"the certificates {self.certificates}: {error}") from error
        return httpx2.Client(follow_redirects=True, timeout=60, verify=verify, auth=self.login)


HUB = FileHost("HF_ENDPOINT")


class _Broken(Exception):
    """The transfer ended before the whole file had arrived."""


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


def fetch(url: str, part: Path, wanted: ExpectedFile, source: FileHost = HUB) -> None:
    """Download `url` to `part` and verify it. The caller holds the lock, `exclusive(part)`.

    Bytes that earlier attempts left in `part` are not requested again (range requests,
    RFC 9110, 14.2), unless the file on the server has changed. A broken transfer is resumed at
    once, as long as each attempt makes progress. Raises PullError.
    """
    while True:
        before = _size(part)
        try:
            promised = _attempt(url, part, wanted, source)
            break
        except (httpx2.TransportError, _Broken) as error:
            if (have := _size(part)) > before:
                continue
            what = f"the connection to {httpx2.URL(url).host} broke ({error});"
            if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                what = f"{httpx2.URL(url).host} cannot be reached ({error}). Check the network and"
                what += f" {source.setting}, then"
            hint = _RESUMABLE_HINT if have else "run the command again"
            raise PullError(f"{what} {hint}") from error
    if promised.sha256:
        require_sha256(part, promised.sha256)


def _attempt(url: str, part: Path, wanted: ExpectedFile, source: FileHost) -> ExpectedFile:
    """Request the missing bytes once; return the size and digest that the whole file must have."""
    have, note = _size(part), dict[str, Any]()
    with suppress(OSError, ValueError):
        known = json.loads(_note_path(part).read_text(encoding="utf-8"))
        note = known if isinstance(known, dict) else {}
    # What came from another URL is deleted. A part without a note is kept only if a checksum will
    # verify the whole file in the end.
    if have and note.get("url") != url and (note or not wanted.sha256):
        part.unlink()
        have = 0
    # With a content coding, ranges and lengths would count other bytes than those of the file.
    headers = {"accept-encoding": "identity"}
    if have:
        headers["range"] = f"bytes={have}-"
        tag = str(note.get("etag") or "")
        # If-Range needs a strong ETag: a weak one does not promise the same bytes (RFC 9110,
        # 13.1.5).
        if tag.startswith('"'):
            headers["if-range"] = tag
    try:
        with (
            source.client() as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            promised = _promised_by(response, url, wanted)
            _receive(response, part, have, url, promised.size)
    except httpx2.InvalidURL as error:
        raise PullError(f"{url} is not a URL: {error}") from error
    except httpx2.TransportError:
        raise
    except httpx2.HTTPError as error:
        raise PullError(f"{url} cannot be fetched: {error}") from error
    if promised.size is not None and _size(part) < promised.size:
        raise _Broken(f"{_size(part)} of {promised.size} bytes came")
    return promised


def _promised_by(response: httpx2.Response, url: str, wanted: ExpectedFile) -> ExpectedFile:
    """Merge the expected values with those in the hub's headers: of a redirect, else of the answer.
    Raises PullError if they differ."""
    linked = ExpectedFile()
    for each in (response, *reversed(response.history)):
        tag = str(each.headers.get("x-linked-etag", "")).strip().removeprefix("W/").strip('"')
        size = str(each.headers.get("x-linked-size", ""))
        if size.isdecimal() or _SHA256.fullmatch(tag):
            linked = ExpectedFile(
                int(size) if size.isdecimal() else None, tag if _SHA256.fullmatch(tag) else None
            )
    digest = wanted.sha256.strip().lower() if wanted.sha256 else None
    for what, ours, theirs in (
        ("size", wanted.size, linked.size),
        ("sha256", digest, linked.sha256),
    ):
        if ours is not None and theirs is not None and ours != theirs:
            raise PullError(
                f"{url} is another file than the one that was asked for: its {what} is {theirs}, "
                f"wanted {ours}; nothing was fetched"
            )
    return ExpectedFile(wanted.size or linked.size, digest or linked.sha256)


def _receive(response: httpx2.Response, part: Path, have: int, url: str, whole: int | None) -> None:
    # 416 whose Content-Range names exactly our size: the part is complete (RFC 9110, 15.5.17).
    total_there = str(response.headers.get("content-range", "")).rpartition("/")[2]
    if response.status_code == 416 and have and total_there == str(have):
        return
    if response.status_code not in (200, 206):
        if response.status_code == 416:  # the part is not of this file: start over the next time
            part.unlink()
        raise _status_error(response)
    # 200: the server ignores ranges, or If-Range did not match because the file has changed.
    begin = have if response.status_code == 206 else 0
    if response.status_code == 206:
        match = _RANGE.match(response.headers.get("content-range", ""))
        if not match or int(match[1]) != begin:
            raise PullError(f"{response.url} sent another part of the file than was asked for")
    size = int(response.headers.get("content-length", 0))
    total = whole or (begin + size if size else None)
    missing, free = (total or 0) - begin, shutil.disk_usage(part.parent).free
    if missing > free - SPARE_BYTES:
        raise PullError(
            f"the disk of {part.parent} has {free / 1e9:.1f} GB free, and {missing / 1e9:.1f} GB "
            "are still to come; make room, or name another folder with MODEL_CACHE_DIR"
        )
    note = json.dumps({"url": url, "etag": response.headers.get("etag")})
    with _full_disk_told(part):
        _note_path(part).write_text(note, encoding="utf-8")
    columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    with _full_disk_told(part), part.open("ab" if begin else "wb") as file, bar:
        task = bar.add_task(part.stem, total=total, completed=begin)
        written = begin
        for block in response.iter_bytes():  # no chunk size: a break loses what is still gathered
            written += len(block)
            if whole is not None and written > whole:
                raise PullError(f"{url} sends more than the {whole} bytes that the file has")
            file.write(block)
            bar.advance(task, len(block))


@contextmanager
def _full_disk_told(part: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL_DISK_ERRORS:
            raise
        raise PullError(
            f"the disk of {part.parent} is full ({error.strerror}); make room, or name another "
            f"folder with MODEL_CACHE_DIR; {_RESUMABLE_HINT}"
        ) from error


def _status_error(response: httpx2.Response) -> PullError:
    """Return a PullError that explains an error status and says what to do."""
    host, status = response.request.url.host, response.status_code
    first = response.history[0].url if response.history else response.url
    if status in (401, 403):
        why = (
            "requires an account or the acceptance of a licence; fetch the file with its own tools"
        )
        why += " and set MODEL_PATH, or choose another model: `terrarium model list`"
    elif status == 404:
        why = "has no such file; see the name of the repository and of the file"
    elif status == 429:
        wait = str(response.headers.get("retry-after", ""))
        why = "asks for another attempt later" + (f", in {wait} s" if wait.isdecimal() else "")
    elif status >= 500:
        why = f"has trouble; try again later, {_RESUMABLE_HINT}"
    else:
        why = "refuses to send it"
    return PullError(f"{first}: {host} answered {status}: it {why}")


def _note_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.origin")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


@contextmanager
def exclusive(part: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock, so that no other command touches `part`. If one does, wait for it or
    raise PullError."""
    lock = part.with_name(f"{part.name}.lock")
    while True:
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                text = f"another command is fetching {part.stem}; wait until it ends"
                raise PullError(text) from None
            # The holder before us may have unlinked the file after we opened it: a lock on a file
            # without a name excludes nobody.
            try:
                if not os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                    continue
            except FileNotFoundError:
                continue
            try:
                yield
            finally:
                if not part.exists():  # renamed or refused: a note without its part means nothing
                    _note_path(part).unlink(missing_ok=True)
                lock.unlink(missing_ok=True)
            return
