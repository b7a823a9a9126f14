"""The lock files are complete and consistent, and the changelog has the version."""

from __future__ import annotations

import re
import subprocess
import tomllib
import venv
from pathlib import Path
from typing import Any

import pip
import pytest

from terrarium import __version__
from tests.docs.reference import ROOT

GROUPS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def pinned(name: str) -> dict[str, str]:
    return dict(PINNED.findall((ROOT / name).read_text(encoding="utf-8")))


def plain(name: str) -> str:
    return name.lower().replace("_", "-")


def project_table() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def test_the_hashed_files_have_the_versions_of_the_constraints() -> None:
    versions = pinned("constraints.txt")
    assert len(versions) > 100
    assert pinned("deploy/requirements-dev.txt") == versions
    assert pinned("deploy/requirements-base.txt").items() <= versions.items()
    with_ray = versions | pinned("deploy/constraints-ray.txt")
    assert pinned("deploy/requirements-ray.txt").items() <= with_ray.items()


@pytest.mark.parametrize("name", ["build", "base", "dev", "ray"])
def test_each_package_has_hashes(name: str) -> None:
    text = (ROOT / f"deploy/requirements-{name}.txt").read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if "==" in entry]
    assert entries
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_all_that_the_project_asks_for_is_locked() -> None:
    project = project_table()
    extras = project["optional-dependencies"]
    of_ray = extras.pop("ray")  # locked separately, too large for every development setup
    everything = [each for wanted in extras.values() for each in wanted]
    files = ["deploy/requirements-dev.txt", "deploy/requirements-ray.txt"]
    for locking, wanted in (
        (["deploy/requirements-base.txt"], []),
        (files[:1], everything),
        (files, of_ray),
    ):
        names = {
            plain(re.split(r"[\[<>=;~! ]", each)[0]) for each in project["dependencies"] + wanted
        }
        locked = {plain(name) for path in locking for name in pinned(path)}
        assert names - {"terrarium-irc"} <= locked


@pytest.mark.process
def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    deploy = tmp_path / "project" / "deploy"
    deploy.mkdir(parents=True)
    for name in ("install", "requirements-build.txt", "requirements-base.txt"):
        (deploy / name).write_bytes((ROOT / "deploy" / name).read_bytes())
    (deploy / "install").chmod(0o755)
    # A package index that serves different files under the names of the locked ones.
    index, locked = tmp_path / "index", pinned("deploy/requirements-build.txt")
    index.mkdir()
    for name, version in locked.items():
        wheel = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        (index / wheel).write_bytes(b"not that file")
    venv.create(tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "pip").symlink_to(Path(pip.__file__).parent)
    done = subprocess.run(
        [deploy / "install", tmp_path / "venv" / "bin" / "python", "base"],
        env={"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_newest_release_is_the_version_of_the_package() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, newest, *_ = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", newest)
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= GROUPS
