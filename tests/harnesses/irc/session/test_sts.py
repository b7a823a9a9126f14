"""Strict transport security: how long a server's word counts, also over whole connections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from harnesses.irc.protocol.errors import IrcError
from harnesses.irc.session.sts import Sts, StsPolicies
from tests.kit.certificates import certificate
from tests.kit.irc_network import Ears, running
from tests.kit.irc_script import Listener, Wire, listening
from tests.kit.patience import until

HOST, LOOPBACK = "irc.example", "127.0.0.1"


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


def test_a_policy_ends_with_its_time_and_the_newest_word_of_the_server_counts(
    policies: Policies,
) -> None:
    policies.kept.store("IRC.Example", 6697, 60)
    for now, port in ((1000.0, 6697), (1059.9, 6697), (1060.0, None), (2000.0, None)):
        policies.now = now
        assert policies.kept.port(HOST) == policies.again().port(HOST) == port
    policies.kept.store(HOST, 6697, 1000)
    policies.kept.store(HOST, 7000, 10)
    policies.kept.renew(HOST)
    for now, port in ((2009.0, 7000), (2010.0, None)):
        policies.now = now
        assert policies.again().port(HOST) == port


def test_a_word_in_the_clear_binds_this_process_and_a_duration_of_0_takes_all_back(
    policies: Policies,
) -> None:
    policies.kept.upgrade(HOST, 6697)
    policies.kept.renew(HOST)
    assert policies.kept.port(HOST) == 6697
    assert policies.again().port(HOST) is None
    assert not policies.path.exists()
    policies.kept.store(HOST, 6697, 60)
    policies.kept.store("other.example", 6697, 60)
    policies.kept.store(HOST, 6697, 0)
    policies.kept.renew(HOST)
    assert policies.kept.port(HOST) is None
    assert policies.again().port(HOST) is None
    assert list(json.loads(policies.path.read_text())) == ["other.example"]


@pytest.mark.parametrize("text", ["", "[]", '{"irc.example": {"port": 1}}', "\x00", "{"])
def test_a_file_that_cannot_be_read_is_not_taken_for_no_policies(text: str, tmp_path: Path) -> None:
    (tmp_path / "sts.json").write_text(text)
    with pytest.raises(IrcError, match=r"sts\.json cannot be read"):
        StsPolicies(tmp_path / "sts.json")


async def said(listener: Listener, announced: str) -> Wire:
    """A connection to which the server has announced `announced`, and which has heard it."""
    wire = await listener.accept()
    assert await wire.line() == "CAP LS 302"
    await wire.say(f"CAP * LS :{announced}")
    await wire.until("CAP END")
    return wire


async def test_each_goodbye_starts_the_time_anew_until_it_is_taken_back(tmp_path: Path) -> None:
    now, path = 1000.0, tmp_path / "sts.json"

    def kept() -> int | None:
        return StsPolicies(path, lambda: now).port(LOOPBACK)

    policies = StsPolicies(path, lambda: now)
    async with (
        listening() as plain,
        listening(certificate(tmp_path).server()) as secure,
        running(plain.port, Ears(), policies=policies, tls_verify=False),
    ):
        wire = await plain.accept()
        await wire.say(f"CAP * LS :sts=port={secure.port},duration=5000")
        assert kept() is None
        wire = await said(secure, "sts=duration=100")
        assert kept() == secure.port
        now = 1100.0
        assert kept() is None, "it has ended, while we are connected"
        wire.close()
        wire = await said(secure, "batch-of-nothing")
        assert kept() == secure.port
        now = 1199.0
        wire.close()
        wire = await said(secure, "batch-of-nothing")
        now = 1298.0
        assert kept() == secure.port, "the server need not say it again"
        wire.close()
        wire = await said(secure, "sts=duration=0")
        assert kept() is None
        wire.close()
        assert await (await plain.accept()).line() == "CAP LS 302"
        assert kept() is None


def failures(logs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why connecting has failed."""
    return [entry["error"] for entry in logs if entry["event"] == "irc.connect_failed"]


async def test_there_is_no_way_back_to_clear_text(tmp_path: Path) -> None:
    good, path = certificate(tmp_path), tmp_path / "sts.json"
    trusted = {"tls_fingerprints": (good.fingerprint,)}
    async with listening() as plain:
        async with (
            listening(good.server()) as secure,
            running(plain.port, Ears(), policies=StsPolicies(path), **trusted),
        ):
            wire = await plain.accept()
            await wire.say(f"CAP * LS :sts=port={secure.port}")
            await said(secure, "sts=duration=1000")
        with capture_logs() as logs:
            async with running(plain.port, Ears(), policies=StsPolicies(path), **trusted):
                await until(lambda: len(failures(logs)) == 2)
        assert plain.wires.empty()


async def test_a_certificate_nobody_trusts_is_no_way_to_upgrade(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with (
            listening() as plain,
            listening(certificate(tmp_path).server()) as secure,
            running(plain.port, Ears()),
        ):
            wire = await plain.accept()
            await wire.say(f"CAP * LS :sts=port={secure.port}")
            await until(lambda: len(failures(logs)) == 2)
            assert plain.wires.empty()
            assert secure.wires.empty()
    assert all("certificate cannot be verified" in error for error in failures(logs))


async def test_a_server_with_another_certificate_does_not_prolong_it(tmp_path: Path) -> None:
    now = 1000.0
    policies = StsPolicies(tmp_path / "sts.json", lambda: now)
    async with listening() as plain, listening(certificate(tmp_path).server()) as other:
        policies.store(LOOPBACK, other.port, 100)
        now = 1050.0
        async with running(plain.port, Ears(), policies=policies, tls_fingerprints=("ab" * 32,)):
            for _ in range(2):
                assert await (await other.accept()).at_end() == b""
        assert plain.wires.empty()
    now = 1100.0
    assert policies.port(LOOPBACK) is None
