"""Strict transport security over whole connections, by a clock that the test sets."""

from __future__ import annotations

from pathlib import Path

from harnesses.irc.session.sts import StsPolicies
from tests.kit.certificates import certificate
from tests.kit.irc_network import Ears, running
from tests.kit.irc_script import Listener, Wire, listening

HOST = "127.0.0.1"


async def said(listener: Listener, announced: str) -> Wire:
    """A connection to which the server has announced `announced`, and which has heard it."""
    wire = await listener.accept()
    assert await wire.line() == "CAP LS 302"
    await wire.say(f"CAP * LS :{announced}")
    await wire.until("CAP END")
    return wire


async def test_each_goodbye_starts_the_time_anew_until_the_server_takes_it_back(
    tmp_path: Path,
) -> None:
    now, path = 1000.0, tmp_path / "sts.json"

    def kept() -> int | None:
        return StsPolicies(path, lambda: now).port(HOST)

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


async def test_a_server_with_another_certificate_does_not_prolong_it(tmp_path: Path) -> None:
    now = 1000.0
    policies = StsPolicies(tmp_path / "sts.json", lambda: now)
    async with listening() as plain, listening(certificate(tmp_path).server()) as other:
        policies.store(HOST, other.port, 100)
        now = 1050.0
        async with running(plain.port, Ears(), policies=policies, tls_fingerprints=("ab" * 32,)):
            for _ in range(2):
                assert await (await other.accept()).at_end() == b""
        assert plain.wires.empty()
    now = 1100.0
    assert policies.port(HOST) is None
