"""The command-line options shared by all commands that read the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file.", show_default="./terrarium.toml, if any"),
]
DataFolder = Annotated[Path, typer.Option("--data", help="Folder for all stored data.")]
