"""Detectors of pages whose kind is recognised by their URL, so that the relevant facts come first.

Repositories, issues and packages are fetched from the documented API of their site, pastes from the
URL of their plain text. Every other page is an article.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a site's JSON that tell about a page, or those `inside` one of them.

    `title`, `text` and the value of each fact name the keys of a field, of which the first that has
    something counts. A fact is shown with its label; one without a label comes first.
    """

    title: str
    facts: Mapping[str, str]
    text: str = ""
    inside: str = ""

    def read(self, source: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str]:
        """Return title, facts and text of untrusted JSON, each empty if it has none."""
        found = source.get(self.inside) if self.inside else source
        fields = found if isinstance(found, Mapping) else {}

        def text(keys: str) -> str:
            return next(filter(None, (_text(fields.get(key)) for key in keys.split())), "")

        said = ((label, text(keys)) for label, keys in self.facts.items())
        facts = (f"{label}: {value}" if label else value for label, value in said if value)
        return text(self.title), tuple(facts), text(self.text)


def _text(value: object) -> str:
    """Return a field of untrusted JSON as text, "" if it is empty or of an unknown form."""
    if isinstance(value, Mapping):
        named = value.get("name") or value.get("login") or value.get("username")
        return _text(named or list(value))
    if isinstance(value, list):
        return ", ".join(filter(None, map(_text, value[:10])))
    return str(value) if isinstance(value, str | int | float) else ""


_REPOSITORY = Fields(
    "full_name path_with_namespace",
    {
        "": "description",
        "language": "language",
        "licence": "license",
        "topics": "topics",
        "stars": "stargazers_count star_count",
        "open issues": "open_issues_count",
        "last change": "pushed_at last_activity_at",
        "archived": "archived",
    },
)
_ISSUE = Fields(
    "title",
    {
        "state": "state",
        "labels": "labels",
        "by": "user author",
        "opened": "created_at",
        "closed": "closed_at",
        "comments": "comments user_notes_count",
    },
    text="body description",
)
_PYPI = Fields(
    "name",
    {
        "about": "summary",
        "version": "version",
        "python": "requires_python",
        "licence": "license_expression",
        "needs": "requires_dist",
        "home": "home_page",
    },
    text="description",
    inside="info",
)
_NPM = Fields(
    "name",
    {"about": "description", "version": "version", "licence": "license", "needs": "dependencies"},
)
_CRATE = Fields(
    "name",
    {
        "about": "description",
        "version": "max_stable_version",
        "downloads": "downloads",
        "last change": "updated_at",
        "repository": "repository",
    },
    inside="crate",
)


@dataclass(frozen=True, slots=True)
class Detector:
    """A kind of page, whose URL without scheme and "www." matches `pattern`.

    `source` is the template of the URL to fetch, filled in with the groups of the match. `fields`
    tell what is where in its JSON; None: it is plain text. A repository has its page's text, too.
    """

    kind: str
    pattern: str
    source: str
    fields: Fields | None = None


_SCHEME = re.compile(r"^https?://(?:www\.)?", re.IGNORECASE)
_NAME = r"[\w.-]+"
_REPO = rf"(?P<owner>{_NAME})/(?P<name>{_NAME}?)(?:\.git)?"
_NUMBER = r"(?P<number>\d{1,9})"
_CODE = r"(?P<code>[\w-]{4,64})"
_GITHUB = "https://api.github.com/repos/{owner}/{name}"
_GITLAB = "https://gitlab.com/api/v4/projects/{owner}%2F{name}"
_FORGEJO = "https://codeberg.org/api/v1/repos/{owner}/{name}"
_ISSUE_PATH = "/issues/{number}"
_GIST = rf"gist\.github\.com/(?P<owner>{_NAME})/(?P<code>[0-9a-f]{{20,40}})"
_GITLAB_ISSUE = rf"gitlab\.com/{_REPO}/-/(?:issues|work_items)/{_NUMBER}"

DETECTORS = (
    Detector(
        "issue", rf"github\.com/{_REPO}/(?:issues|pull)/{_NUMBER}", _GITHUB + _ISSUE_PATH, _ISSUE
    ),
    Detector("issue", _GITLAB_ISSUE, _GITLAB + _ISSUE_PATH, _ISSUE),
    Detector(
        "issue",
        rf"codeberg\.org/{_REPO}/(?:issues|pulls)/{_NUMBER}",
        _FORGEJO + _ISSUE_PATH,
        _ISSUE,
    ),
    Detector("repository", rf"github\.com/{_REPO}", _GITHUB, _REPOSITORY),
    Detector("repository", rf"gitlab\.com/{_REPO}", _GITLAB, _REPOSITORY),
    Detector("repository", rf"codeberg\.org/{_REPO}", _FORGEJO, _REPOSITORY),
    Detector(
        "package",
        rf"pypi\.org/project/(?P<name>{_NAME})(?:/{_NAME})?",
        "https://pypi.org/pypi/{name}/json",
        _PYPI,
    ),
    Detector(
        "package",
        rf"npmjs\.com/package/(?P<name>(?:@{_NAME}/)?{_NAME})",
        "https://registry.npmjs.org/{name}/latest",
        _NPM,
    ),
    Detector(
        "package",
        rf"crates\.io/crates/(?P<name>{_NAME})",
        "https://crates.io/api/v1/crates/{name}",
        _CRATE,
    ),
    Detector("paste", rf"pastebin\.com/{_CODE}", "https://pastebin.com/raw/{code}"),
    Detector(
        "paste", rf"paste\.debian\.net/(?:hidden/)?{_CODE}", "https://paste.debian.net/plain/{code}"
    ),
    Detector("paste", rf"dpaste\.com/{_CODE}", "https://dpaste.com/{code}.txt"),
    Detector("paste", rf"bpa\.st/{_CODE}", "https://bpa.st/raw/{code}"),
    Detector("paste", _GIST, "https://gist.githubusercontent.com/{owner}/{code}/raw"),
)
"""All detectors, in the order in which they are tried."""


def detect(url: str) -> tuple[Detector, str] | None:
    """Return the detector of a page and the URL to fetch for it, None for an article."""
    address = _SCHEME.sub("", url.partition("#")[0]).rstrip("/")
    for detector in DETECTORS:
        if match := re.fullmatch(detector.pattern, address, re.IGNORECASE):
            parts = {key: part for key, part in match.groupdict().items() if part}
            # A dot segment would turn the URL of a documented API, which is fetched without regard
            # to robots.txt, into any other URL of its host.
            if not {".", ".."} & {piece for part in parts.values() for piece in part.split("/")}:
                # Slashes are quoted too: a scoped npm package, "@types/node", is one segment.
                quoted = {key: quote(part, safe="") for key, part in parts.items()}
                return detector, detector.source.format(**quoted)
    return None
