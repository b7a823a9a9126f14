"""Detectors of pages whose kind is recognised by their URL, so that the relevant facts come first.

Repositories, issues and packages are fetched from the documented API of their site, pastes from the
URL of their plain text. Every other page is an article.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Facts = Callable[[Mapping[str, Any]], "Summary"]


@dataclass(frozen=True, slots=True)
class Summary:
    """The essentials of a page: its title, short facts, and a text."""

    title: str
    facts: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Detector:
    """A kind of page, whose URL without scheme and "www." matches `pattern`.

    `source` is the template of the URL to fetch, filled in with the groups of the match. `facts`
    turns its JSON into a summary; None: the source is plain text. With `has_page`, the text of the
    page itself is added.
    """

    kind: str
    pattern: re.Pattern[str]
    source: str
    facts: Facts | None = None
    has_page: bool = False

    def source_of(self, url: str) -> str | None:
        """Return the URL to fetch for a page of this kind, None for any other page."""
        match = self.pattern.fullmatch(_SCHEME.sub("", url.partition("#")[0]).rstrip("/"))
        if match is None:
            return None
        # A dot segment would turn the URL of a documented API, which is fetched without regard to
        # robots.txt, into any other URL of its host.
        if _DOT_SEGMENTS & {segment for _, part in _named(match) for segment in part.split("/")}:
            return None
        # Slashes are quoted too: the name of a scoped npm package, "@types/node", is one segment.
        return self.source.format(**{key: quote(part, safe="") for key, part in _named(match)})


_SCHEME = re.compile(r"^https?://(?:www\.)?", re.IGNORECASE)
_DOT_SEGMENTS = {".", ".."}
_NAME = r"[\w.-]+"
_REPO = rf"(?P<owner>{_NAME})/(?P<name>{_NAME}?)(?:\.git)?"


def detect(url: str) -> tuple[Detector, str] | None:
    """Return the detector of a page and the URL to fetch for it, None for an article."""
    for detector in DETECTORS:
        if source := detector.source_of(url):
            return detector, source
    return None


def _named(match: re.Match[str]) -> list[tuple[str, str]]:
    return [(key, part) for key, part in match.groupdict().items() if part]


def _text(value: object) -> str:
    """Return a field of untrusted JSON as text, "" if it is empty or of an unknown form."""
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("login") or value.get("username")
    if isinstance(value, list):
        return ", ".join(filter(None, map(_text, value[:10])))
    return str(value) if isinstance(value, str | int | float) else ""


def _facts(source: Mapping[str, Any], **names: str) -> tuple[str, ...]:
    """Return the non-empty fields of a source as "label: text"; `names` maps labels to keys."""
    said = ((label, _text(source.get(key))) for label, key in names.items())
    return tuple(f"{label.replace('_', ' ')}: {text}" for label, text in said if text)


def _repository(source: Mapping[str, Any]) -> Summary:
    title = _text(source.get("full_name") or source.get("path_with_namespace"))
    description = _text(source.get("description"))
    facts = _facts(
        source,
        language="language",
        licence="license",
        topics="topics",
        stars="stargazers_count" if "stargazers_count" in source else "star_count",
        open_issues="open_issues_count",
        last_change="pushed_at" if "pushed_at" in source else "last_activity_at",
        archived="archived",
    )
    return Summary(title, (description, *facts) if description else facts)


def _issue(source: Mapping[str, Any]) -> Summary:
    return Summary(
        _text(source.get("title")),
        _facts(
            source,
            state="state",
            labels="labels",
            by="user" if "user" in source else "author",
            opened="created_at",
            closed="closed_at",
            comments="comments" if "comments" in source else "user_notes_count",
        ),
        _text(source.get("body") or source.get("description")),
    )


def _pypi(source: Mapping[str, Any]) -> Summary:
    info = source.get("info")
    info = info if isinstance(info, Mapping) else {}
    facts = _facts(
        info,
        about="summary",
        version="version",
        python="requires_python",
        licence="license_expression",
        needs="requires_dist",
        home="home_page",
    )
    return Summary(_text(info.get("name")), facts, _text(info.get("description")))


def _npm(source: Mapping[str, Any]) -> Summary:
    needs = source.get("dependencies")
    facts = _facts(source, about="description", version="version", licence="license")
    if isinstance(needs, Mapping) and needs:
        facts = (*facts, f"needs: {', '.join(list(needs)[:10])}")
    return Summary(_text(source.get("name")), facts)


def _crate(source: Mapping[str, Any]) -> Summary:
    about = source.get("crate")
    about = about if isinstance(about, Mapping) else {}
    facts = _facts(
        about,
        about="description",
        version="max_stable_version",
        downloads="downloads",
        last_change="updated_at",
        repository="repository",
    )
    return Summary(_text(about.get("name")), facts)


def _page(host: str, path: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(host)}/{path}", re.IGNORECASE)


_GITHUB, _GITLAB, _FORGEJO = (
    "https://api.github.com/repos/{owner}/{name}",
    "https://gitlab.com/api/v4/projects/{owner}%2F{name}",
    "https://codeberg.org/api/v1/repos/{owner}/{name}",
)
_NUMBER = r"(?P<number>\d{1,9})"
_CODE = r"(?P<code>[\w-]{4,64})"

DETECTORS = (
    Detector(
        "issue",
        _page("github.com", rf"{_REPO}/(?:issues|pull)/{_NUMBER}"),
        f"{_GITHUB}/issues/{{number}}",
        _issue,
    ),
    Detector(
        "issue",
        _page("gitlab.com", rf"{_REPO}/-/(?:issues|work_items)/{_NUMBER}"),
        f"{_GITLAB}/issues/{{number}}",
        _issue,
    ),
    Detector(
        "issue",
        _page("codeberg.org", rf"{_REPO}/(?:issues|pulls)/{_NUMBER}"),
        f"{_FORGEJO}/issues/{{number}}",
        _issue,
    ),
    Detector("repository", _page("github.com", _REPO), _GITHUB, _repository, has_page=True),
    Detector("repository", _page("gitlab.com", _REPO), _GITLAB, _repository, has_page=True),
    Detector("repository", _page("codeberg.org", _REPO), _FORGEJO, _repository, has_page=True),
    Detector(
        "package",
        _page("pypi.org", rf"project/(?P<name>{_NAME})(?:/{_NAME})?"),
        "https://pypi.org/pypi/{name}/json",
        _pypi,
    ),
    Detector(
        "package",
        _page("npmjs.com", rf"package/(?P<name>(?:@{_NAME}/)?{_NAME})"),
        "https://registry.npmjs.org/{name}/latest",
        _npm,
    ),
    Detector(
        "package",
        _page("crates.io", rf"crates/(?P<name>{_NAME})"),
        "https://crates.io/api/v1/crates/{name}",
        _crate,
    ),
    Detector("paste", _page("pastebin.com", _CODE), "https://pastebin.com/raw/{code}"),
    Detector(
        "paste",
        _page("paste.debian.net", rf"(?:hidden/)?{_CODE}"),
        "https://paste.debian.net/plain/{code}",
    ),
    Detector("paste", _page("dpaste.com", _CODE), "https://dpaste.com/{code}.txt"),
    Detector("paste", _page("bpa.st", _CODE), "https://bpa.st/raw/{code}"),
    Detector(
        "paste",
        _page("gist.github.com", rf"(?P<owner>{_NAME})/(?P<code>[0-9a-f]{{20,40}})"),
        "https://gist.githubusercontent.com/{owner}/{code}/raw",
    ),
)
"""All detectors, in the order in which they are tried."""
