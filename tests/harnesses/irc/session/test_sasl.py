"""Logging in: SASL as the server sees it, line by line."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from harnesses.irc.protocol.errors import SaslFailed
from harnesses.irc.session.registration import login_problem
from harnesses.irc.session.sasl import Scram
from tests.kit.irc_session import WELCOME, Story
from tests.kit.scram_server import ScramServer

JILLES: dict[str, Any] = {"sasl_username": "jilles", "sasl_password": "sesame"}
LOGGED_IN = ("900 * * jilles :You are now logged in.", "903 * :SASL authentication successful")


def asked(story: Story, offered: str = "sasl") -> list[str]:
    """What the client says once `sasl` is acknowledged."""
    assert story.reply(f"CAP * LS :{offered}") == ["CAP REQ sasl"]
    story.feed("CAP * ACK :sasl ")
    return now(story)


def now(story: Story, *lines: str) -> list[str]:
    """What is sent without delay."""
    return [out.message.render() for out in story.outgoing(*lines) if not out.delay]


def said(story: Story) -> bytes:
    """The whole message that the client has sent, its chunks put together."""
    words = [line.removeprefix("AUTHENTICATE ") for line in now(story)]
    if words[-1] == "+":  # by itself: nothing more; base64 may end with one as well
        del words[-1]
    return base64.b64decode("".join(words))


def test_plain_says_who_we_are_with_the_password_and_the_log_says_who_is_logged_in() -> None:
    story = Story(sasl=["plain"], **JILLES)
    assert asked(story) == ["AUTHENTICATE PLAIN"]
    assert story.reply("AUTHENTICATE +") == ["AUTHENTICATE amlsbGVzAGppbGxlcwBzZXNhbWU="]
    with capture_logs() as logs:
        assert story.reply(*LOGGED_IN) == ["CAP END"]
        story.feed(*WELCOME)
    assert [(entry["event"], entry["account"]) for entry in logs] == [("irc.logged_in", "jilles")]
    assert login_problem(story.session) == ""


@pytest.mark.parametrize(
    ("password", "sizes"),
    [("barbaz" * 100, [400, 400, 12]), ("éèà" * 100, [400, 400, 12]),
     ("quux" * 148, [400, 400, 1]), ("éè" * 148, [400, 400, 1]), ("x" * 288, [396])],
)  # fmt: skip
def test_long_passwords_go_in_pieces_of_400(password: str, sizes: list[int]) -> None:
    story = Story(sasl=["PLAIN"], sasl_username="foo", sasl_password=password)
    asked(story)
    story.feed("AUTHENTICATE +")
    words = [line.split()[1] for line in now(story)]
    assert [len(word) for word in words] == sizes
    assert (words[-1] == "+") == (sizes[-1] == 1)
    whole = base64.b64decode("".join(words).rstrip("+"))
    assert whole == b"foo\0foo\0" + password.encode()


KEY = {"sasl_username": "jilles", "sasl_key": "/nonexistent/key.pem"}
BELL = {"sasl_username": "jilles", "sasl_password": "bell\a"}  # which SASLprep forbids
BOTH = ["SCRAM-SHA-256", "PLAIN"]


@pytest.mark.parametrize(
    ("settings", "offered", "begins"),
    [
        pytest.param(JILLES | {"sasl": ["PLAIN"]}, "EXTERNAL", "CAP END", id="none in common"),
        pytest.param(JILLES | {"sasl": BOTH}, ",".join(reversed(BOTH)), BOTH[0], id="our order"),
        pytest.param(JILLES | {"sasl": BOTH}, "PLAIN", "PLAIN", id="what is offered"),
        pytest.param(BELL | {"sasl": BOTH[:1]}, "", "CAP END", id="not for SCRAM"),
        pytest.param(KEY, "", "CAP END", id="no such key"),
    ],
)
def test_the_first_mechanism_that_both_sides_have_begins(
    settings: dict[str, Any], offered: str, begins: str
) -> None:
    said = asked(Story(encrypted=True, **settings), f"sasl={offered}".removesuffix("="))
    assert said == [begins if begins == "CAP END" else f"AUTHENTICATE {begins}"]


@pytest.mark.parametrize("numeric", ["902", "904", "905", "906"])
def test_every_refusal_ends_the_negotiation(numeric: str) -> None:
    story = Story(sasl=["PLAIN"], **JILLES)
    asked(story)
    assert story.reply("AUTHENTICATE +", f":s {numeric} * :No")[-1] == "CAP END"


def test_a_password_is_said_in_the_clear_only_when_that_is_asked_for() -> None:
    assert asked(Story(**JILLES), "sasl=PLAIN") == ["CAP END"]
    assert asked(Story(encrypted=True, **JILLES), "sasl=PLAIN") == ["AUTHENTICATE PLAIN"]
    assert asked(Story(sasl=["PLAIN"], **JILLES), "sasl=PLAIN") == ["AUTHENTICATE PLAIN"]


def test_a_refused_mechanism_makes_room_for_the_next() -> None:
    story = Story(sasl=["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"], **JILLES)
    assert asked(story) == ["AUTHENTICATE SCRAM-SHA-512"]
    assert story.reply("908 * PLAIN,EXTERNAL :are available SASL mechanisms", "904 * :failed") == [
        "AUTHENTICATE PLAIN"
    ]
    assert story.reply("AUTHENTICATE +", "904 * :failed")[-1] == "CAP END"
    story.feed(*WELCOME)
    assert story.session.is_ready


def test_services_that_never_answer_are_given_up() -> None:
    story = Story(sasl=["PLAIN"], **JILLES)
    story.feed("CAP * LS :sasl", "CAP * ACK :sasl")
    later = {out.message.render(): out for out in story.outgoing() if out.delay}
    assert [out.delay for out in later.values()] == [15.0, 20.0]
    abort, end = later["AUTHENTICATE *"], later["CAP END"]
    assert abort.unless
    assert end.unless
    assert (abort.unless(), end.unless()) == (False, False)
    story.feed(*LOGGED_IN)
    assert (abort.unless(), end.unless()) == (True, True)


def test_services_that_come_back_are_told_who_we_are_and_nickserv_what_sasl_has_not() -> None:
    story = Story(sasl=["PLAIN"], **JILLES)
    story.feed("CAP * LS :batch", "CAP * ACK :batch", *WELCOME)
    story.sent()
    assert story.reply("CAP Terra NEW :sasl=PLAIN") == ["CAP REQ sasl"]
    assert now(story, "CAP Terra ACK :sasl") == ["AUTHENTICATE PLAIN"]
    story.feed("AUTHENTICATE +", *LOGGED_IN)
    assert "CAP END" not in story.sent(), "that was long ago"
    keys = {"sasl": ["PLAIN"], "nickserv_password": "secret", **JILLES}
    story = Story([], **keys)
    asked(story)
    story.feed("AUTHENTICATE +", *LOGGED_IN, *WELCOME)
    assert not any("NickServ" in line for line in story.sent())
    story = Story([], encrypted=True, **keys)
    asked(story)
    assert story.reply("AUTHENTICATE +", "904 * :No", *WELCOME)[-1] == "WHOIS NickServ"


def exchange(story: Story, server: ScramServer) -> bytes | None:
    """A whole SCRAM exchange up to the server's final message, which is returned."""
    assert asked(story) == [f"AUTHENTICATE SCRAM-SHA-{server.digest.removeprefix('sha')}"]
    story.feed("AUTHENTICATE +")
    first = base64.b64encode(server.first(said(story))).decode()
    story.feed(f"AUTHENTICATE :{first}")
    return server.final(said(story))


@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_scram_proves_both_sides(digest: str) -> None:
    mechanism = f"SCRAM-SHA-{digest[3:]}"
    story = Story(sasl=[mechanism], **JILLES)
    final = exchange(story, ScramServer("sesame", digest))
    assert final is not None
    assert story.reply(f"AUTHENTICATE {base64.b64encode(final).decode()}") == ["AUTHENTICATE +"]
    assert story.reply(*LOGGED_IN) == ["CAP END"]
    story = Story(sasl=[mechanism], **JILLES)
    assert exchange(story, ScramServer("notsesame", digest)) is None
    assert story.reply("904 * :SASL authentication failed") == ["CAP END"]


def test_a_server_that_only_pretends_to_know_the_password_gets_none() -> None:
    story = Story(sasl=["SCRAM-SHA-256", "PLAIN"], nickserv_password="secret", **JILLES)
    final = exchange(story, ScramServer("sesame", lying=True))
    assert final is not None
    assert story.reply(f"AUTHENTICATE {base64.b64encode(final).decode()}") == ["AUTHENTICATE *"]
    assert story.reply("906 * :SASL authentication aborted", *WELCOME) == ["CAP END", "JOIN #c"], (
        "neither PLAIN nor NickServ follows"
    )


def test_success_or_an_account_before_the_servers_proof_is_none() -> None:
    story = Story(sasl=["SCRAM-SHA-256"], nickserv_password="secret", **JILLES)
    exchange(story, ScramServer("sesame"))
    assert story.reply(*LOGGED_IN, *WELCOME) == ["CAP END", "JOIN #c"]
    story = Story(sasl=["SCRAM-SHA-256"], sasl_required=True, **JILLES)
    exchange(story, ScramServer("sesame"))
    story.feed(LOGGED_IN[0], LOGGED_IN[0])
    assert story.session.sasl.account is None
    assert "sasl_required" in (story.session.error or "")
    assert story.sent() == []


@pytest.mark.parametrize("early", [LOGGED_IN[:1], LOGGED_IN])
def test_an_account_without_an_exchange_is_not_the_login_that_is_required(
    early: tuple[str, ...],
) -> None:
    story = Story(sasl=["PLAIN"], sasl_required=True, **JILLES)
    story.feed(*early, "CAP * LS :")
    assert "the server offers no SASL" in (story.session.error or "")
    assert story.sent() == []


def test_an_account_from_elsewhere_mends_no_refused_exchange_and_keeps_us_from_none() -> None:
    story = Story(sasl=["PLAIN"], sasl_required=True, **JILLES)
    asked(story)
    story.feed("AUTHENTICATE +", LOGGED_IN[0], "904 * :SASL authentication failed", *LOGGED_IN)
    assert "SASL authentication failed" in (story.session.error or "")
    story = Story(sasl=["PLAIN"], sasl_required=True, **JILLES)
    story.feed(LOGGED_IN[0])
    assert asked(story) == ["AUTHENTICATE PLAIN"]
    story.feed("AUTHENTICATE +", *LOGGED_IN, *WELCOME)
    assert story.session.error is None
    assert story.session.is_ready
    story = Story(nickserv_password="sesame", **JILLES)  # here none by SASL is required
    story.feed("CAP * LS :", *WELCOME, LOGGED_IN[0])
    assert story.session.sasl.account == "jilles"
    assert login_problem(story.session) == ""


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"r=x,s=c2FsdCBvZiBhIHRlc3Q=,i=4096",
        b"r={n},s=c2FsdCBvZiBhIHRlc3Q=,i=4096",
        b"r={n}+,s=c2FsdCBvZiBhIHRlc3Q=,i=1",
        b"r={n}+,s=c2FsdCBvZiBhIHRlc3Q=,i=9999999",
        b"r={n}+,s=!,i=4096",
        b"m=x,r={n}+,s=c2FsdCBvZiBhIHRlc3Q=,i=4096",
    ],
)
def test_a_first_message_that_is_wrong_is_not_answered(first: bytes) -> None:
    scram = Scram("SCRAM-SHA-256", "jilles", "sesame", nonce="abc")
    scram.answer(b"")
    with pytest.raises(SaslFailed):
        scram.answer(first.replace(b"{n}", b"abc"))


def test_the_exchange_of_rfc_7677_comes_out_the_same() -> None:
    scram = Scram("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert scram.answer(b"") == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert scram.answer(b"r=%s,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096" % nonce) == (
        b"c=biws,r=%s,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=" % nonce
    )
    assert not scram.complete
    assert scram.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""
    assert scram.complete


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b"),
     ("\u0007", ""), ("\u0627\u0031", "")],
)  # fmt: skip
def test_names_take_the_one_form_of_rfc_4013_or_are_refused(text: str, prepared: str) -> None:
    if not prepared:
        with pytest.raises(ValueError, match="name or password"):
            Scram("SCRAM-SHA-256", "jilles", text)
        return
    first = Scram("SCRAM-SHA-256", text, "sesame", nonce="abc").answer(b"")
    assert first.decode() == f"n,,n={prepared},r=abc"


@pytest.mark.parametrize("as_file", [False, True])
def test_a_challenge_is_signed_with_our_key(as_file: bool, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    given_key = str(tmp_path / "key.pem") if as_file else pem.decode()
    name = "ECDSA-NIST256P-CHALLENGE"
    story = Story(sasl=[name], sasl_username="jilles", sasl_key=given_key)
    assert asked(story) == [f"AUTHENTICATE {name}"]
    assert story.reply("AUTHENTICATE +") == ["AUTHENTICATE amlsbGVz"]
    challenge = bytes(range(32))
    story.feed(f"AUTHENTICATE {base64.b64encode(challenge).decode()}")
    signature, digest = said(story), ec.ECDSA(Prehashed(SHA256()))
    key.public_key().verify(signature, challenge, digest)
    with pytest.raises(InvalidSignature):
        key.public_key().verify(signature, bytes(32), digest)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(
    ["AUTHENTICATE", "AUTHENTICATE +", "AUTHENTICATE !", "AUTHENTICATE " + "A" * 400,
     "AUTHENTICATE cj0x", "900", "901", "902", "903", "904", "905", "906", "907", "908", "908 * X",
     "CAP * ACK :sasl", "CAP * NEW :sasl=X", "CAP * DEL :sasl", "CAP * LS", "CAP * WHAT :x"]
)))  # fmt: skip
def test_no_order_of_events_breaks_the_exchange(lines: list[str]) -> None:
    story = Story(**JILLES)
    story.feed("CAP * LS :sasl", *lines, *WELCOME)
    assert all("sesame" not in line for line in story.sent())
    assert story.session.is_ready
