"""`make release` builds what it promises from a tag, and refuses a tree that is not one release."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from terrarium import __version__
from tests.docs.reference import ROOT
from tests.kit.programs import installed

TAG = f"v{__version__}"


class Checkout:
    """A clone of the last commit, for tags and files of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (ROOT / ".git").exists():
            pytest.skip("this is no checkout")
        self._run(installed("git"), "clone", "-q", "--depth", "1", f"file://{ROOT}", str(folder))

    def git(self, *words: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        self._run("git", "-C", str(self.folder), *identity, *words)

    def release(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "deploy/release.py"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)


def test_a_tree_that_is_not_one_release_is_refused(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "src")

    def refusal() -> str:
        done = checkout.release()
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    assert f"no tag is checked out; make one: git tag -s {TAG}" in refusal()
    checkout.git("tag", "v99.0.0")
    assert f"the tag is v99.0.0, but terrarium/__init__.py has {__version__}" in refusal()
    checkout.git("tag", "-d", "v99.0.0")
    changelog = checkout.folder / "CHANGELOG.md"
    changelog.write_text("# Changelog\n")
    assert "changes that are not committed" in refusal()
    checkout.git("commit", "-aqm", "Forget all changes")
    checkout.git("tag", TAG)
    assert f"CHANGELOG.md has no section [{__version__}]" in refusal()
    assert not (checkout.folder / "dist").exists()


@pytest.mark.slow
def test_a_release_is_built_from_the_tag_alone_and_tried(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "src")
    checkout.git("tag", TAG)
    checkout.git("remote", "set-url", "origin", "git@forge.example:them/terrarium.git")
    done = checkout.release()
    assert done.returncode == 0, done.stderr
    dist = checkout.folder / "dist"
    wheel = dist / f"terrarium_irc-{__version__}-py3-none-any.whl"
    assert f"  dist/{wheel.name}" in done.stdout
    assert f"git push origin {TAG}" in done.stdout
    with zipfile.ZipFile(wheel) as files:
        about = files.read(f"terrarium_irc-{__version__}.dist-info/METADATA").decode()
    assert "Project-URL: Homepage, https://forge.example/them/terrarium" in about
    assert f"(https://forge.example/them/terrarium/blob/{TAG}/docs/tutorial.md)" in about
    with tarfile.open(dist / f"terrarium_irc-{__version__}.tar.gz") as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert names >= {"terrarium.example.toml", "docs/deploy.md", "deploy/terrarium.service"}
