"""docs/features.md names modules and tests that exist."""

from __future__ import annotations

import re

from tests.docs.reference import ROOT
from tests.docs.test_promises import named_in

_ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.M)


def test_each_feature_has_its_modules_and_tests() -> None:
    rows = _ROW.findall((ROOT / "docs/features.md").read_text(encoding="utf-8"))
    assert [int(number) for number, *_ in rows] == list(range(1, 37))
    known = named_in("tests")
    for number, _, modules, tests in rows:
        for module in modules.split(", "):
            assert (ROOT / module.strip("`")).is_file(), (number, module)
        assert [name for name in tests.split(", ") if name.strip("`") not in known] == [], number
