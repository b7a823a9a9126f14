"""Packages that are installed once, for environments that tests make."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def lend_packages(environment: Path) -> None:
    """Show a virtual environment the packages of ours: pip then installs there what is missing."""
    site = next(environment.glob("lib/python*/site-packages"))
    ours = sysconfig.get_path("purelib")
    # `addsitedir`, as the .pth files in it count too.
    (site / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
