"""Downloads of models of the catalogue that a client has asked for, one at a time."""

from __future__ import annotations

import threading
from pathlib import Path

from agent_server.errors import PullError
from agent_server.model_catalogue.catalogue import CatalogueEntry
from agent_server.model_files import store


class ModelPulls:
    """The downloads into the folder of models. Each runs in a thread of its own and ends with the
    process; what has arrived of a file is kept, and the next download goes on from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread: threading.Thread | None = None
        self._name = ""
        self.troubles: dict[str, str] = {}

    def start(self, entry: CatalogueEntry) -> bool:
        """Begin to download a model, unless that is under way already; return False while another
        one is."""
        if self._thread and self._thread.is_alive():
            return self._name == entry.name

        def pull() -> None:
            try:
                store.pull_entry(entry, self.folder)
            except (PullError, OSError) as error:
                self.troubles[entry.name] = str(error)

        self.troubles.pop(entry.name, None)
        self._name = entry.name
        # A daemon, so that the server can stop in the middle of it.
        self._thread = threading.Thread(target=pull, name="pull", daemon=True)
        self._thread.start()
        return True

    def state(self, entry: CatalogueEntry) -> dict[str, object]:
        """Return whether a model `is_here`, the `bytes` of it that have arrived, whether it
        `is_pulling`, and the `trouble` with its last download or use, "" for none."""
        files = (self.folder / name for name in (entry.file, f"{entry.file}.part"))
        sizes = [file.stat().st_size if file.is_file() else 0 for file in files]
        is_alive = self._thread is not None and self._thread.is_alive()
        return {
            "is_here": sizes[0] == entry.size,
            "bytes": max(sizes),
            "is_pulling": is_alive and self._name == entry.name,
            "trouble": self.troubles.get(entry.name, ""),
        }
