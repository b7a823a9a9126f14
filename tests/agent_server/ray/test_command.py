"""`terrarium server --ray` without the extra."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command import terrarium


@pytest.mark.process
async def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('no Ray here')\n")
    done = await terrarium("server", "--ray", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.status == 78
    assert "pip install 'terrarium[ray]'" in done.err
