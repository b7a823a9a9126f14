"""One process at a time carries out erasures, wherever it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.privacy.pending_erasures import erasure_lock
from tests.kit.stores import Stores


async def test_a_process_waits_while_another_carries_out_erasures(
    stores: Stores, tmp_path: Path
) -> None:
    # On PostgreSQL the other process may be on another machine, with a folder of its own.
    here = there = tmp_path
    if not isinstance(stores.place, Path):
        there = tmp_path / "elsewhere"
    async with Database.open(stores("irc")) as one, Database.open(stores("irc")) as other:
        async with erasure_lock(one, here):
            with pytest.raises(Unavailable, match="another process"):
                async with erasure_lock(other, there, patience=0.3):
                    pass
        async with erasure_lock(other, there, patience=0.3):
            pass
