"""Sharing of installed packages with virtual environments created by tests."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def lend_packages(environment: Path) -> None:
    """Make the packages of this environment importable in another one.

    pip sees them there as well and only installs missing ones.
    """
    site = next(environment.glob("lib/python*/site-packages"))
    ours = sysconfig.get_path("purelib")
    # `addsitedir` rather than a path, because it also processes the .pth files of our folder, such
    # as those of editable installations.
    (site / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
