"""Wheels from a Python package index, fetched without pip: environments of uvx and pipx have none.

The indexes are those that pip and uv use on this machine: their environment variables, pip.conf,
else PyPI. Simple API: https://packaging.python.org/en/latest/specifications/simple-repository-api/
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as BrokenConfig
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpx2

from agent_server.errors import PullError
from agent_server.model_files.download import ExpectedFile, FileHost, fetch, require_sha256

_DEFAULT_INDEX = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_SECTIONS = ("global", "install", "download")
"""Sections of pip.conf; the later ones win."""

_DIRECT = ("http://", "https://")


class _Links(HTMLParser):
    """The links of a project's page in the HTML form of the API."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the address of a link."""
        self.urls += [value for key, value in attrs if tag == "a" and key == "href" and value]


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel by its file name, and its SHA-256 in hex."""

    filename: str
    sha256: str

    @property
    def project(self) -> str:
        """The project's name as in the URLs of an index."""
        return re.sub(r"[-_.]+", "-", self.filename.partition("-")[0]).lower()

    def url_in(self, index: str, source: FileHost) -> str | None:
        """Return its URL in an index, None if that does not have it. Raises PullError."""
        page = f"{index}/{self.project}/"
        try:
            with source.client() as client:
                response = client.get(page, headers={"accept": _ACCEPT})
            if response.status_code == 404:
                return None
            response.raise_for_status()
            if "json" in response.headers.get("content-type", ""):
                links = [str(file["url"]) for file in response.json()["files"]]
            else:
                links = _Links(response.text).urls
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
            raise PullError(f"{page} cannot be read ({error!r})") from error
        for link in links:
            url = urlsplit(urljoin(str(response.url), link))
            if unquote(url.path).rpartition("/")[2] == self.filename:
                return url._replace(fragment="").geturl()
        return None


def index_urls(pip: Mapping[str, str]) -> Sequence[str]:
    """Return the URLs of the indexes that pip's options and uv's variables name, in order."""
    uv = os.environ.get
    first = uv("UV_DEFAULT_INDEX") or uv("UV_INDEX_URL") or pip.get("index-url")
    more = [uv("UV_INDEX"), uv("UV_EXTRA_INDEX_URL"), pip.get("extra-index-url")]
    urls = [first or _DEFAULT_INDEX, *" ".join(filter(None, more)).split()]
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return ()
    # uv allows a name before the URL, NAME=URL.
    urls = [re.sub(r"^[\w-]+=(?=https?://)", "", url).rstrip("/") for url in urls]
    return list(dict.fromkeys(url for url in urls if url.startswith(_DIRECT)))


def pip_options() -> Mapping[str, str]:
    """Return pip's options by name: of its environment variables, else of its files."""
    home = Path.home()
    shared = os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)
    own = os.environ.get("XDG_CONFIG_HOME") or home / ".config"
    files = [*(Path(each, "pip", "pip.conf") for each in shared), Path("/etc/pip.conf")]
    files += [home / ".pip/pip.conf", home / "Library/Application Support/pip/pip.conf"]
    files += [Path(own, "pip", "pip.conf"), Path(sys.prefix, "pip.conf")]
    files += [Path(each) for each in [os.environ.get("PIP_CONFIG_FILE")] if each]
    found: dict[str, str] = {}
    for file in files:
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(file, encoding="utf-8")
        except (OSError, UnicodeDecodeError, BrokenConfig):
            continue  # pip reports it
        for section in _SECTIONS:
            if parser.has_section(section):
                found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    variables = {
        key.removeprefix("PIP_").lower().replace("_", "-"): value
        for key, value in os.environ.items()
        if key.startswith("PIP_") and value
    }
    return found | variables


def fetch_wheel(wheel: Wheel, part: Path) -> None:
    """Download a wheel to `part`, verified; an interrupted download is resumed. The caller holds
    the lock, `exclusive(part)`. Raises PullError."""
    pip = pip_options()
    for link in pip.get("find-links", "").split():
        path = Path(unquote(link.removeprefix("file://")), wheel.filename)
        if not link.startswith(_DIRECT) and path.is_file():
            shutil.copyfile(path, part)
            return require_sha256(part, wheel.sha256)
    failures = []
    for index in index_urls(pip):
        parts = urlsplit(index)
        login, _, host = parts.netloc.rpartition("@")
        name, _, password = map(unquote, login.partition(":"))
        account = (name, password) if login else None
        source = FileHost("your package index", pip.get("cert"), account)
        # Without the login, no address of ours can tell it.
        index = parts._replace(netloc=host).geturl()
        try:
            url = wheel.url_in(index, source)
            if url:
                is_same = urlsplit(url)[:2] == (parts.scheme, host)
                source = source if is_same else replace(source, login=None)
                return fetch(url, part, ExpectedFile(sha256=wheel.sha256), source)
            failures.append(f"{index} does not have it")
        except PullError as error:
            failures.append(str(error))
    reasons = "; ".join(failures) or "no package index is configured"
    raise PullError(f"{wheel.filename} cannot be fetched: {reasons}")
