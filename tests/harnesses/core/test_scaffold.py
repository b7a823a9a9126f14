"""Which names `terrarium new` takes."""

from __future__ import annotations

import compileall
import re
from pathlib import Path

import pytest

from harnesses.core.errors import TendrilError
from harnesses.core.scaffold import Kind, scaffold


@pytest.mark.parametrize("kind", Kind)
def test_the_package_is_written_with_its_name_everywhere(tmp_path: Path, kind: Kind) -> None:
    folder = scaffold("letter_box", tmp_path, kind)
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert written == {
        "pyproject.toml",
        "README.md",
        "terrarium_letter_box/__init__.py",
        "terrarium_letter_box/tendril.py",
        "terrarium_letter_box/persona.md",
        "tests/conftest.py",
        "tests/test_tendril.py",
    }
    code = (folder / "terrarium_letter_box/tendril.py").read_text()
    assert re.search(r"class LetterBoxTendril\((Chat)?Tendril\)", code)
    assert "LETTER_BOX_" in (folder / "README.md").read_text()
    texts = [(folder / name).read_text().replace("the room $room", "") for name in written]
    assert not any("$" in text for text in texts)
    assert compileall.compile_dir(folder, quiet=1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My-Bot", '"my_bot" would do'),
        ("../evil", '"evil" would do'),
        ("9lives", '"lives" would do'),
        ("", "a letter first"),
        ("class", "is not a valid name"),
        ("ünïcode", "is not a valid name"),
        ("web", r"table \[web\] already"),
        ("storage", "taken"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(TendrilError, match=words):
        scaffold(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("precious")
    with pytest.raises(TendrilError, match="exists already"):
        scaffold("letters", tmp_path)
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["mine.txt"]
