"""How long a server's word on transport security counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harnesses.irc.protocol.errors import IrcError
from harnesses.irc.session.sts import Sts, StsPolicies

HOST = "irc.example"


class Policies:
    """Policies in a file, with a clock that stands at 1000 until it is set."""

    def __init__(self, folder: Path) -> None:
        self.path, self.now = folder / "kept" / "sts.json", 1000.0
        self.kept = self.again()

    def again(self) -> StsPolicies:
        """As another process reads them."""
        return StsPolicies(self.path, lambda: self.now)


@pytest.fixture
def policies(tmp_path: Path) -> Policies:
    return Policies(tmp_path)


@pytest.mark.parametrize(
    ("value", "port", "duration"),
    [
        ("port=6697,duration=60", 6697, 60),
        ("duration=0", None, 0),
        ("port=6697", 6697, None),
        ("port=0,duration=-1", None, None),
        ("port=65536,duration=1e3", None, None),
        ("port=٦,duration=", None, None),
        (f"duration={'9' * 18},preload", None, None),
        ("", None, None),
    ],
)
def test_what_is_no_number_counts_as_missing(
    value: str, port: int | None, duration: int | None
) -> None:
    assert Sts.parse(value) == Sts(port, duration)


def test_a_policy_ends_when_its_time_is_over(policies: Policies) -> None:
    policies.kept.store("IRC.Example", 6697, 60)
    for now, port in ((1000.0, 6697), (1059.9, 6697), (1060.0, None), (2000.0, None)):
        policies.now = now
        assert policies.kept.port(HOST) == port
        assert policies.again().port(HOST) == port


def test_another_word_of_the_server_replaces_the_one_before(policies: Policies) -> None:
    policies.kept.store(HOST, 6697, 1000)
    policies.kept.store(HOST, 7000, 10)
    policies.kept.renew(HOST)
    policies.now = 1009.0
    assert policies.again().port(HOST) == 7000
    policies.now = 1010.0
    assert policies.again().port(HOST) is None


def test_a_duration_of_0_takes_it_back_for_good(policies: Policies) -> None:
    policies.kept.upgrade(HOST, 6697)
    policies.kept.store(HOST, 6697, 60)
    policies.kept.store("other.example", 6697, 60)
    policies.kept.store(HOST, 6697, 0)
    policies.kept.renew(HOST)
    assert policies.kept.port(HOST) is None
    assert policies.again().port(HOST) is None
    assert list(json.loads(policies.path.read_text())) == ["other.example"]


def test_a_word_in_the_clear_binds_this_process_alone(policies: Policies) -> None:
    policies.kept.upgrade(HOST, 6697)
    policies.kept.renew(HOST)
    assert policies.kept.port(HOST) == 6697
    assert policies.again().port(HOST) is None
    assert not policies.path.exists()


@pytest.mark.parametrize("text", ["", "[]", '{"irc.example": {"port": 1}}', "\x00", "{"])
def test_a_file_that_cannot_be_read_is_not_taken_for_no_policies(text: str, tmp_path: Path) -> None:
    (tmp_path / "sts.json").write_text(text)
    with pytest.raises(IrcError, match=r"sts\.json cannot be read"):
        StsPolicies(tmp_path / "sts.json")
