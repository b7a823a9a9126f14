"""The session of a connection after its welcome: whatever a server sends it, and refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import ACCEPTED, Receipt, ReceiptStatus
from harnesses.irc.session.handlers import JOIN_REFUSED
from harnesses.irc.session.session import MULTILINE, Member
from tests.kit.irc_session import IN_CHANNEL, NOON, WELCOME, Story, echoing, inside


def now(events: list[IrcEvent]) -> list[IrcEvent]:
    """Those that are not of the past."""
    return [event for event in events if not event.batch_type]


def test_our_nick_and_host_are_learnt_wherever_the_server_tells_them() -> None:
    story = inside()
    (event,) = story.feed(":Terra!~t@host.example NICK Gaia")
    assert (event.type, event.own, event.text, event.channel) == ("NICK", True, "Gaia", "#c")
    assert story.session.nick == "Gaia"
    assert story.members() == {"Gaia", "owner", "alice"}
    assert story.feed(":alice!a@h PRIVMSG Gaia :hi")[0].channel is None
    assert str(story.session.source) == "Gaia!~t@host.example"
    story.feed(":s 396 Gaia cloak.example :is now your displayed host")
    assert str(story.session.source) == "Gaia!~t@cloak.example"
    story.feed(":Gaia!~t@cloak.example CHGHOST me vhost.example")
    assert str(story.session.source) == "Gaia!me@vhost.example"


def test_an_unknown_casemapping_is_taken_for_rfc1459_and_the_log_says_so_once() -> None:
    odd = tuple(line.replace("=rfc1459", "=unheard-of") for line in WELCOME)
    for lines, told in ((WELCOME, []), (odd, ["unheard-of"])):
        story = Story()
        with capture_logs() as log:
            story.feed(*lines, ":Terra!~t@host.example JOIN #c", ":Bob[x]!b@h JOIN #C")
            story.feed(":bob{X}!b@h NICK rob")
        assert story.members() == {"Terra", "rob"}
        said = [entry for entry in log if entry["event"] == "irc.unknown_casemapping"]
        assert [entry["casemapping"] for entry in said] == told


def test_members_are_found_after_the_casemapping_has_changed() -> None:
    story = inside(":Bob[x]!b@h JOIN #c", ":s 353 Terra = #c :Terra ~@Owner[y] Bob[x]")
    story.feed(":s 005 Terra CASEMAPPING=ascii :are supported", ":s 366 Terra #c :End")
    network = story.session
    assert network.roster.person("BOB[X]")
    assert not network.roster.person("bob{x}")
    story.feed(":s 005 Terra CASEMAPPING=rfc1459 :are supported", ":bob{X}!b@h PART #C")
    assert story.members() == {"Terra", "Owner[y]"}
    assert network.is_joined


def test_a_names_reply_of_several_lines_forgets_nobody_who_comes_meanwhile() -> None:
    story = inside(
        ":s 353 Terra = #c :Terra ~@owner alice dave",
        ":carol!c@h JOIN #c",
        ":alice!a@h PART #c",
        ":dave!d@h NICK david",
        ":s 366 Terra #c :End",
    )
    assert story.members() == {"Terra", "owner", "carol", "david"}
    story.feed(":s 353 Terra = #C :@bob", ":s 353 Terra = #c :Terra", ":s 366 Terra #c :End")
    assert story.members() == {"Terra", "bob"}


def test_quit_and_nick_come_once_for_each_shared_channel() -> None:
    story = Story(["#c", "#D"])
    story.feed(
        *IN_CHANNEL,
        ":Terra!t@h JOIN #D",
        ":bob!b@h JOIN #c",
        ":BOB!b@h JOIN #D",
        ":carol!c@h JOIN #D",
    )
    renamed = story.feed(":bob!b@h NICK rob")
    assert [(e.type, e.channel, e.nick, e.text) for e in renamed] == [
        ("NICK", "#c", "bob", "rob"),
        ("NICK", "#D", "bob", "rob"),
    ]
    left = story.feed(":rob!b@h QUIT :Ping timeout")
    assert [(e.channel, e.text) for e in left] == [("#c", "Ping timeout"), ("#D", "Ping timeout")]
    assert story.members("#D") == {"Terra", "carol"}
    assert story.feed(":stranger!s@h QUIT :bye") == []


def test_after_a_kick_we_return_a_little_later_and_to_a_channel_that_we_left_never() -> None:
    story = inside()
    (event,) = story.feed(":owner!o@h KICK #c Terra :out")
    assert (event.nick, event.target, event.text) == ("owner", "Terra", "out")
    assert not story.session.is_joined
    (again,) = story.outgoing()
    assert (again.message.render(), again.delay) == ("JOIN #c", 60.0)
    story = inside()
    del story.wanted["#c"]
    assert story.reply(":Terra!t@h PART #c :bye") == []
    assert story.session.is_joined


def test_events_carry_what_the_tags_say() -> None:
    story = Story()
    story.feed("CAP * LS :account-tag message-tags", "CAP * ACK :account-tag message-tags")
    story.feed(*IN_CHANNEL)
    (event,) = story.feed(
        "@time=2026-01-01T11:08:09.5Z;msgid=m1;account=ally :alice!al@h PRIVMSG #C :hi  there"
    )
    assert event == IrcEvent(
        network="net",
        type="PRIVMSG",
        channel="#c",
        target="#C",
        nick="alice",
        user="al",
        host="h",
        account="ally",
        text="hi  there",
        time=datetime(2026, 1, 1, 11, 8, 9, 500_000, tzinfo=UTC),
        msgid="m1",
        own=False,
        batch_type=None,
    )


@pytest.mark.parametrize(
    ("tag", "believed"),
    [
        ("2026-01-01T12:05:00.000Z", True),
        ("2026-01-01T12:05:00.001Z", False),
        ("2025-12-31T12:00:00.000Z", True),
        ("2025-12-31T11:59:59.999Z", False),
        ("2099-01-01T00:00:00.000Z", False),
        ("1970-01-01T00:00:00.000Z", False),
        ("9999-12-31T23:59:59.999-23:59", False),
        ("0001-01-01T00:00:00.000+23:59", False),
        ("2026-99-01T00:00:00Z", False),
        ("yesterday", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("line", ["PRIVMSG #c :x", "QUIT :x", "JOIN #c"])
def test_a_server_whose_clock_is_wrong_is_not_believed(tag: str, line: str, believed: bool) -> None:
    (event,) = inside().feed(f"@time={tag} :alice!a@h {line}")
    assert event.time == (datetime.fromisoformat(tag) if believed else NOON)
    assert event.time.utcoffset() == timedelta(0)


@pytest.mark.parametrize("year", ["0001", "2020", "2030", "9999"])
def test_what_came_before_us_is_known_by_a_wrong_clock_too(year: str) -> None:
    story = Story()
    story.feed(*WELCOME, f"@time={year}-05-06T12:00:00Z :Terra!~t@host.example JOIN #c")
    said = [f"@time={year}-05-06T{time}Z :a!b@c PRIVMSG #c :x" for time in ("11:59:00", "12:01:00")]
    assert [event.time for event in now(story.feed(*said))] == [NOON]


@pytest.mark.parametrize(
    ("past", "new"),
    [
        # Once there was a live line, a clock was put back.
        (["11:59:00"], ["12:01:00", "11:01:00", "11:02:00"]),
        (["11:00:00.000", "11:59:58.900"], ["11:59:59.500", "12:00:00.000"]),
    ],
)
def test_what_is_older_than_our_coming_is_the_past_without_a_batch_too(
    past: list[str], new: list[str]
) -> None:
    story = Story()
    story.feed(*WELCOME, "@time=2026-01-01T12:00:00Z :Terra!~t@host.example JOIN #c")
    said = [f"@time=2026-01-01T{time}Z :a!b@c PRIVMSG #c :{time}" for time in past + new]
    assert [event.text for event in now(story.feed(*said))] == new
    story.feed(":Terra!~t@host.example PART #c")
    story.feed("@time=2026-01-01T11:03:00Z :Terra!~t@host.example JOIN #c")
    replayed = "@time=2026-01-01T11:02:00Z :a!b@c PRIVMSG #c :x"
    assert now(story.feed(replayed)) == []  # told of anew to who comes back


def test_accounts_are_known_from_joins_where_lines_are_not_tagged() -> None:
    story = inside(":dan!d@h JOIN #c danacc :Dan", ":eve!e@h JOIN #c * :Eve")
    assert story.feed(":dan!d@h PRIVMSG #c :x")[0].account == "danacc"
    assert story.feed(":eve!e@h PRIVMSG #c :x")[0].account is None
    story.feed(":eve!e@h ACCOUNT evil", ":dan!d@h ACCOUNT *")
    assert story.feed(":eve!e@h PRIVMSG #c :x")[0].account == "evil"
    assert story.feed(":dan!d@h PRIVMSG #c :x")[0].account is None


def test_each_kind_of_talk_has_its_type() -> None:
    story = inside()
    events = story.feed(
        ":a!b@c PRIVMSG #c :.terrarium hi",
        ":a!b@c NOTICE #c :psst",
        ":a!b@c PRIVMSG #c :\x01ACTION waves\x01",
        ":a!b@c PRIVMSG #c :\x01ACTION forgets the end",
        ":a!b@c PRIVMSG @#c :ops only",
        ":a!b@c PRIVMSG Terra :secret",
        ":a!b@c TOPIC #c :new  topic",
        ":a!b@c MODE #c +ov a b",
        ":Terra MODE Terra :+i",
    )
    assert [(e.type, e.channel, e.target, e.text) for e in events] == [
        ("PRIVMSG", "#c", "#c", ".terrarium hi"),
        ("NOTICE", "#c", "#c", "psst"),
        ("ACTION", "#c", "#c", "waves"),
        ("ACTION", "#c", "#c", "forgets the end"),
        ("PRIVMSG", "#c", "@#c", "ops only"),
        ("PRIVMSG", None, "Terra", "secret"),
        ("TOPIC", "#c", "#c", "new  topic"),
        ("MODE", "#c", "#c", "+ov a b"),
    ]


def test_ctcp_is_answered_but_not_logged_and_not_in_a_flood() -> None:
    story = inside()
    assert story.feed(":a!b@c PRIVMSG Terra :\x01PING 12 34\x01") == []
    assert story.sent() == ["NOTICE a :\x01PING 12 34\x01"]
    assert story.reply(":a!b@c PRIVMSG Terra :\x01VERSION\x01") == []
    assert story.reply(":other!o@h PRIVMSG Terra :\x01CLIENTINFO\x01") == [
        "NOTICE other :\x01CLIENTINFO ACTION CLIENTINFO PING SOURCE TIME VERSION\x01"
    ]
    story.feed(":third!o@g PRIVMSG Terra :\x01TIME\x01", ":fourth!o@i PRIVMSG #c :\x01SOURCE\x01")
    assert [line.split()[2] for line in story.sent()] == [":\x01TIME", ":\x01SOURCE"]
    story.feed(*(f":n{n}!u@h{n} PRIVMSG Terra :\x01PING x\x01" for n in range(9)))
    assert len(story.sent()) == 1, "five for all people within ten seconds"
    story.now += timedelta(seconds=10)
    story.feed(":a!b@c PRIVMSG Terra :\x01VERSION\x01")
    assert story.sent()[0].startswith("NOTICE a :\x01VERSION Terrarium ")
    story.now += timedelta(seconds=2)
    assert story.feed(":a!b@c NOTICE Terra :\x01PING x\x01", ":a!b@c PRIVMSG Terra :\x01\x01") == []
    assert story.sent() == []


def test_lines_of_the_past_are_no_events_and_change_nothing() -> None:
    story = inside("BATCH +1 chathistory #c")
    events = story.feed(
        "@batch=1;time=2020-01-01T00:00:00Z :old!o@h PRIVMSG #c :.terrarium again",
        "@batch=1 :alice!a@h QUIT :long ago",
        "@batch=1 :old!o@h PRIVMSG Terra :\x01PING 1\x01",
    )
    assert [(e.text, e.batch_type) for e in events] == [(".terrarium again", "chathistory")]
    assert events[0].time == datetime(2020, 1, 1, tzinfo=UTC)
    assert "alice" in story.members()
    assert story.sent() == []
    story.feed("BATCH -1")
    assert story.feed("@batch=1 :a!b@c PRIVMSG #c :now")[0].batch_type is None


def test_echoes_of_labelled_lines_are_receipts_and_others_are_events() -> None:
    story = echoing()
    first, second, third, fourth = (story.track("#c")[0] for _ in range(4))
    events = story.feed(
        f"@label={first} :Terra!~t@host.example PRIVMSG #c :one",
        ":Terra!~t@host.example PRIVMSG NickServ :IDENTIFY secret",  # by hand; never logged
        ":Terra!~t@host.example PRIVMSG #c :typed by hand",
        f"@label={second} :s 404 Terra #c :Cannot send to channel (+m)",
        f"@label={third} :s BATCH +9 labeled-response",
        "@batch=9 :Terra!~t@host.example PRIVMSG alice :two",
        "@batch=9 :s 301 Terra alice :away",
        ":s BATCH -9",
        f"@label={fourth} :s ACK",
        f"@label={fourth} :s ACK",
    )
    assert [(event.text, event.own) for event in events] == [("typed by hand", True)]
    refused = Receipt(ReceiptStatus.REFUSED, "Cannot send to channel (+m)")
    answers = [(first, ACCEPTED), (second, refused), (third, ACCEPTED), (fourth, ACCEPTED)]
    assert story.receipts == answers
    story = Story()  # where they cannot be told apart they are not asked for
    assert story.reply("CAP * LS :echo-message message-tags") == ["CAP REQ message-tags"]
    assert story.track("#c")[1] == {}


def test_all_who_ask_for_a_nick_get_the_next_answer_about_it() -> None:
    story, answers = inside(), list[Member | None]()
    assert story.session.whois("Bob", answers.append).render() == "WHOIS Bob"
    story.feed(":s 263 Terra LIST :Please wait a while and try again")
    assert answers == [], "another command was refused"
    story.feed(":s 263 Terra WHOIS :Please wait a while and try again")
    assert answers == [None]
    for _ in range(2):
        story.session.whois("bob", answers.append)
    story.feed(":s 311 Terra bob b host * :Bob", ":s 318 Terra bob :End of WHOIS")
    assert [answer and answer.host for answer in answers[1:]] == ["host"] * 2
    story.feed(":s 311 Terra bob b other * :Bob", ":s 318 Terra bob :End of WHOIS")
    assert len(answers) == 3


def test_ping_is_answered_at_once_and_error_is_kept() -> None:
    story = inside()
    story.feed("@x PING :tok en")
    (pong,) = story.outgoing()
    assert (pong.message.render(), pong.urgent) == ("PONG :tok en", True)
    story.feed("ERROR :Closing Link: banned")
    assert story.session.error == "Closing Link: banned"


COMMANDS = """
    JOIN PART KICK QUIT NICK MODE TOPIC PRIVMSG NOTICE CAP BATCH ACCOUNT CHGHOST PING ERROR 001
    005 353 366 376 396 332 433 432 475 AWAY SETNAME INVITE 417
"""
PARAMS = st.lists(
    st.sampled_from(
        ["", "#c", "Terra", "alice", "*", "LS", "ACK", "-", "\x01", "x y", "+1", "-1", MULTILINE]
    )
)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(COMMANDS.split()), PARAMS), max_size=12))
def test_no_sequence_of_odd_lines_breaks_the_session(
    lines: list[tuple[bool, str, list[str]]],
) -> None:
    story = inside()
    for sourced, command, params in lines:
        line = f"{'@batch=1 :alice!a@h ' if sourced else ''}{command} {' '.join(params)}"
        story.session.wrote(line)
        for event in story.feed(line):
            assert event.time.tzinfo is UTC
    story.outgoing()


@pytest.mark.parametrize("numeric", sorted(set(JOIN_REFUSED) - {"470"}))
def test_every_refusal_of_a_channel_is_logged_and_tried_again(numeric: str) -> None:
    story = Story(["#k"])
    story.feed(*WELCOME)
    story.sent()
    with capture_logs() as logs:
        story.feed(f":s {numeric} Terra #K :\x02Cannot join channel")
    [entry] = logs
    assert (entry["event"], entry["numeric"]) == ("irc.join_refused", numeric)
    assert entry["reason"] == "Cannot join channel"
    (again,) = story.outgoing()
    assert (again.message.render(), again.delay) == ("JOIN #k", 60.0)
    [refusal] = story.session.refusals
    assert (refusal.channel, refusal.reason) == ("#K", "Cannot join channel")


def test_a_channel_that_stays_closed_is_knocked_at_less_and_less() -> None:
    story = Story(["#k"])
    story.feed(*WELCOME)
    pauses = []
    for _ in range(8):
        story.sent()
        story.feed(":s 474 Terra #k :Cannot join channel (+b)")
        pauses += [out.delay for out in story.outgoing()]
    assert pauses == [60, 120, 240, 480, 960, 1800, 1800, 1800]
    story.feed(":Terra!~t@host.example JOIN #k")
    assert story.session.refusals == []


def test_a_channel_that_we_are_forwarded_to_is_left_and_one_that_a_plugin_joins_is_kept() -> None:
    story = Story(["#from"])
    story.feed(*WELCOME)
    story.session.wrote("JOIN #from")
    story.sent()
    forward = ":s 470 Terra #from #to :You are forwarded"
    assert story.feed(forward, ":Terra!~t@host.example JOIN #to") == []
    assert "PART :#to" in story.sent()
    assert story.session.roster.channels == []
    story.session.wrote("JOIN #plugin,#Other")
    story.feed(":Terra!~t@h JOIN #plugin", ":Terra!~t@h JOIN #other")
    assert story.session.roster.channels == ["#plugin", "#other"]


def test_an_invitation_to_a_configured_channel_is_followed_and_another_is_an_event() -> None:
    story = Story(["#k"])
    story.wanted["#k"] = "key"
    story.feed(*WELCOME, ":s 473 Terra #k :Cannot join channel (+i)")
    story.sent()
    assert story.feed(":op!o@h INVITE Terra :#K") == []
    assert [(o.message.render(), o.delay) for o in story.outgoing()] == [("JOIN #k key", 0.0)]
    [event] = story.feed(":op!o@h INVITE Terra #other")
    assert (event.type, event.channel, event.nick) == ("INVITE", "#other", "op")
    story.feed(":Terra!~t@host.example JOIN #k")
    assert story.feed(":op!o@h INVITE somebody #other", ":op!o@h INVITE Terra #k") == []
    assert story.sent() == []


def test_a_key_that_is_changed_is_learnt() -> None:
    story = inside(":op!o@h MODE #c +kl new 5")
    assert story.wanted == {"#c": "new"}
    story.feed(":op!o@h MODE #c +k *")
    assert story.wanted == {"#c": "new"}
    story.feed(":op!o@h MODE #c -k new")
    assert story.wanted == {"#c": ""}


def test_without_echoes_a_line_is_taken_when_the_ping_after_it_is_answered() -> None:
    story = inside()
    (one, tags), (two, _) = story.track("#C"), story.track("alice")
    assert tags == {}
    fence = story.session.fence((one, two))
    assert fence
    later, _ = story.track("#c")
    story.feed(":s 401 Terra Alice :No such nick")
    assert story.receipts == [(two, Receipt(ReceiptStatus.REFUSED, "No such nick"))]
    story.feed(f":s PONG s :{fence.param(0)}")
    assert story.receipts[1:] == [(one, ACCEPTED)]
    why = "You need a registered nick to speak"
    story.feed(f":s 477 Terra #c :{why}")  # about a channel in which we are: no refused JOIN
    assert story.receipts[2:] == [(later, Receipt(ReceiptStatus.REFUSED, why))]
    assert story.session.refusals == []
