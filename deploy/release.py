"""Build a release of the tag that is checked out: `make release [REPOSITORY=https://...]`.

It builds the sdist and the wheel in dist/ from the tag alone, installs the wheel into an empty
environment, tries it, and prints what a person has to check before uploading. REPOSITORY, by
default the remote `origin`, is for the links of the package's page.
"""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SIGN_OFF = """\
{files}

Before you upload these files:
  [ ] CI is green for {tag}
  [ ] CHANGELOG.md tells what changed, and which settings were renamed or removed
  [ ] an upgrade of real data from the previous version works, and the way back (docs/upgrading.md)
  [ ] in an empty folder, on Linux and macOS: uvx --from dist/{wheel} terrarium up
      answers a question; backup, restore
  [ ] docker compose up -d --build, and the question on IRC
  [ ] a second person has seen this list: name, date
Then: uv publish dist/terrarium_irc-*, git push origin {tag}, and docker push of the image"""


def main() -> int:
    """Build and try the release; return the exit status."""
    if run("git", "status", "--porcelain"):
        return refuse("the work tree has changes that are not committed")
    tag = run("git", "tag", "--points-at", "HEAD", "v*").split("\n")[0]
    version = tag.removeprefix("v")
    source = (ROOT / "terrarium" / "__init__.py").read_text("utf-8")
    ours = re.findall(r'^__version__ = "(.+)"$', source, re.M)[0]
    if not tag:
        return refuse(f"no tag is checked out; make one: git tag -s v{ours}")
    if version != ours:
        return refuse(f"the tag is {tag}, but terrarium/__init__.py has {ours}")
    if f"## [{version}] - " not in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        return refuse(f"CHANGELOG.md has no section [{version}] with a date")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        run("git", "archive", "--output", f"{folder}/tree.tar", tag)
        with tarfile.open(f"{folder}/tree.tar") as files:
            files.extractall(tree, filter="data")
        add_links(tree, tag)
        DIST.mkdir(exist_ok=True)
        for old in DIST.glob("terrarium_irc-*"):
            old.unlink()
        run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST), cwd=tree)
        (wheel,) = DIST.glob("terrarium_irc-*.whl")
        environment = Path(folder, "environment")
        venv.create(environment, with_pip=True)
        python = str(environment / "bin" / "python")
        run(python, "-m", "pip", "install", "-q", "-c", str(tree / "constraints.txt"), str(wheel))
        run(python, "-m", "pip", "check")
        said = run(str(environment / "bin" / "terrarium"), "--version", cwd=Path(folder))
        if said != f"terrarium {version}":
            return refuse(f"the installed command says: {said}")
        run(str(environment / "bin" / "terrarium"), "config", "check", cwd=Path(folder))
    built = sorted(DIST.glob("terrarium_irc-*"))
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  dist/{each.name}" for each in built]
    print(SIGN_OFF.format(files="\n".join(sums), tag=tag, wheel=wheel.name))
    return 0


def add_links(tree: Path, tag: str) -> None:
    """Add the project's addresses to pyproject.toml, and make the README's links absolute."""
    remote = "origin" in run("git", "remote").split()
    url = os.environ.get("REPOSITORY") or (
        run("git", "remote", "get-url", "origin") if remote else ""
    )
    url = re.sub(r"^git@([^:]+):", r"https://\1/", url).removesuffix(".git")
    if not url.startswith("https://"):
        print("release: no REPOSITORY is known, so the package has no links", file=sys.stderr)
        return
    pages = {"Homepage": url, "Changelog": f"{url}/blob/{tag}/CHANGELOG.md"}
    pages |= {"Documentation": f"{url}/tree/{tag}/docs", "Issues": f"{url}/issues"}
    lines = [f'{name} = "{page}"' for name, page in pages.items()]
    project = tree / "pyproject.toml"
    urls = "\n[project.urls]\n" + "\n".join(lines) + "\n"
    project.write_text(project.read_text("utf-8") + urls, "utf-8")
    readme = tree / "README.md"
    text = readme.read_text("utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\g<1>{url}/raw/{tag}/", text)
    text = re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{url}/blob/{tag}/", text)
    readme.write_text(text, "utf-8")


def run(*command: str, cwd: Path = ROOT) -> str:
    """Run a command; return what it prints. Ends this program if it fails."""
    done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(refuse(f"{' '.join(command)} failed"))
    return done.stdout.strip()


def refuse(why: str) -> int:
    """Print why there is no release; return the exit status."""
    print(f"release: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
