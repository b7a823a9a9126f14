"""The changelog's newest release is the package's version, below an "Unreleased" section."""

from __future__ import annotations

import re
import tomllib

from tests.docs.reference import ROOT

GROUPS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_newest_release_is_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, newest, *_ = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(project['version'])}\] - \d{{4}}-\d\d-\d\d", newest)
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= GROUPS
