"""Rules without sockets: who is meant by a mask, how much one may ask, which setting counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harnesses.core.commands.request import ParsedCommand, TokenBuckets, parse_command
from harnesses.irc.channel_settings import (
    ChannelBehaviour,
    ChannelKeys,
    LiveSettings,
    key_of,
    value_of,
)
from harnesses.irc.protocol.message import sanitize
from harnesses.irc.requests import (
    BotLoopDetector,
    IrcRequest,
    RequestPolicy,
    matches_any,
    place_of,
    room_key,
    scope_of,
    status_of,
)
from harnesses.irc.settings import IrcSettings, NetworkSettings
from harnesses.irc.transport.network import Network
from harnesses.irc.transport.networks import Networks
from storage.chat_log.event import (
    PUBLIC,
    Identity,
    PendingEvent,
    Place,
    Scope,
    channel_of_room,
    status_room,
)
from storage.db.database import Database
from terrarium.config import Config
from tests.kit.clock import Seconds
from tests.kit.irc_session import WELCOME, Story, inside

ALICE = Identity("alice[x]", "al", "h.example", "Alice")
STRANGER = replace(ALICE, account=None)
BRIDGED = replace(ALICE, bridged=True)


@pytest.mark.parametrize(
    ("who", "entries", "means_them"),
    [
        (ALICE, ["alice"], True),
        (ALICE, ["ALICE"], True),
        (ALICE, ["alice[x]"], False),
        (ALICE, ["alice[x]!*@*"], True),
        (ALICE, ["*!al@*"], True),
        (ALICE, ["*@h.example"], True),
        (ALICE, ["alice[?]!*@*"], True),
        (ALICE, ["alicex!*@*"], False),
        (ALICE, ["*!*@h.exampl"], False),
        (ALICE, [""], False),
        (ALICE, [], False),
        (STRANGER, ["alice"], False),
        (BRIDGED, ["alice"], False),
    ],
)
def test_an_entry_is_an_account_which_no_relay_has_or_a_mask(
    who: Identity, entries: list[str], means_them: bool
) -> None:
    assert matches_any(who, entries, str.lower) == means_them


def test_a_bucket_gives_ten_seconds_worth_at_once_and_then_its_rate() -> None:
    clock = Seconds()
    buckets = TokenBuckets(0.5, clock, refusals_cost=False)
    assert [buckets.try_acquire("a") for _ in range(6)] == [True] * 5 + [False]
    assert buckets.try_acquire("b")
    clock.now += 2
    assert [buckets.try_acquire("a") for _ in range(2)] == [True, False]
    assert [buckets.should_notify("a") for _ in range(3)] == [True, False, False]
    clock.now += 61
    assert buckets.should_notify("a"), "once a minute"


def test_who_floods_is_heard_after_being_quiet_and_not_before() -> None:
    clock = Seconds()
    buckets = TokenBuckets(1.0, clock, refusals_cost=True)
    for _ in range(100):
        buckets.try_acquire("mallory")
        clock.now += 0.1
    clock.now += 5
    assert not buckets.try_acquire("mallory")
    clock.now += 15
    assert buckets.try_acquire("mallory")
    for _ in range(300):
        buckets.try_acquire("mallory")
    buckets.set_rate(0.1)
    clock.now += 20.1  # from the lowest balance that the new rate allows to one token
    assert buckets.try_acquire("mallory"), "a lower rate does not lengthen the silence"


async def test_the_most_specific_place_wins_and_there_what_was_set(tmp_path: Path) -> None:
    here, there, anywhere = Place("net", "#c"), Place("net", "#d"), Place("net", "*")
    default = ChannelBehaviour(".", 4, "terra", 50)
    async with Database.open(tmp_path / "irc.db") as database:
        live = await LiveSettings.load(database)
        file = {"#C": ChannelKeys(line_budget=2, model="file"), "*": ChannelKeys(model="all")}
        live.configure("net", default, file, str.lower)
        await live.set_value(here, "line_budget", 1)
        await live.set_value(anywhere, "model", "set")
        assert live.resolve(there) == ChannelBehaviour(".", 4, "set", 50)
        assert live.resolve(here) == ChannelBehaviour(".", 1, "file", 50)
        await live.set_value(here, "line_budget", None)
        assert live.resolve(here).line_budget == 2
        await live.set_value(anywhere, "model", None)
        assert live.resolve(there).model == "all"
        live.configure("net", default, {}, str.lower)
        assert live.resolve(here) == default


def test_a_part_of_a_name_means_a_key_and_a_value_is_read_as_that_wants_it() -> None:
    assert key_of("prefix") == "command_prefix"
    assert key_of("LINE_BUDGET") == "line_budget"
    with pytest.raises(ValueError, match="there are: command_prefix, persona"):
        key_of("wish")
    assert value_of("logging", "off") is False
    assert value_of("line_budget", "3") == 3
    assert value_of("proactive", "off") == "off"
    with pytest.raises(ValueError, match="proactive: Input should be 'off', 'test' or 'on'"):
        value_of("proactive", "sometimes")
    with pytest.raises(ValueError, match="line_budget: Input should be"):
        value_of("line_budget", "many")


def test_whoever_types_keeps_talking_and_whoever_does_not_is_closed_until_quiet() -> None:
    clock = Seconds()
    loop_detector = BotLoopDetector(clock)
    heard = []
    for pause in (9, 9, 9, 0.1, 0.1, 0.1, 0.1, 30):
        loop_detector.note_reply("p")
        clock.now += pause
        heard.append(not loop_detector.record_and_check("p", "how are you today, dear bot?", "#c"))
    assert heard == [True] * 5 + [False] * 3
    clock.now += 61
    loop_detector.note_reply("p")
    for text in ("hello?", "and now?"):  # one coincidence does not close it again
        assert not loop_detector.record_and_check("p", text, "#c")


def test_lines_sent_together_are_no_loop_when_their_answers_come_one_by_one() -> None:
    clock = Seconds()
    loop_detector = BotLoopDetector(clock)
    for number in range(20):
        clock.now += 0.1
        assert not loop_detector.record_and_check("p", "what is 9+9?", "#c")
        if number % 5 == 4:
            loop_detector.note_reply("p")


def test_turns_without_a_human_line_between_are_capped_per_hour_however_slow() -> None:
    now = 0.0
    loop_detector = BotLoopDetector(lambda: now)

    def answered(turns: int) -> int:
        nonlocal now
        count = 0
        for _ in range(turns):
            now += 40.0
            count += not loop_detector.record_and_check("bot", "how are you?", "#c")
            loop_detector.note_reply("bot")
        return count

    assert answered(89) == 60, "89 turns of 40 seconds are less than an hour"
    loop_detector.note_line("#other", "alice")
    loop_detector.note_line("#c", "bot")
    assert loop_detector.record_and_check("bot", "and you?", "#c")
    loop_detector.note_line("#c", "alice")
    assert not loop_detector.record_and_check("bot", "and you?", "#c")


def requested(network: Network, who: Identity, place: Place, person: str) -> IrcRequest:
    """A request in private."""
    words, pending = "hi", PendingEvent(None)
    return IrcRequest(
        place, True, who, words, PUBLIC, pending, False, person, network=network, recipient=who.nick
    )


async def test_new_settings_do_not_end_the_silence_after_a_flood(tmp_path: Path) -> None:
    clock, network = Seconds(), Network("net", NetworkSettings(server="irc.example"))
    async with Database.open(tmp_path / "irc.db") as database:
        live = await LiveSettings.load(database)
    irc = {"server": "irc.example", "person_per_minute": 60}
    networks = Networks(Config({"irc": irc}, None, tmp_path))
    policy = RequestPolicy(networks, live, clock)
    request = requested(network, ALICE, Place("net", "#c"), "alice")
    while policy.try_acquire(request):
        pass
    assert policy.should_notify(request)
    policy.configure(IrcSettings(person_per_minute=120))
    assert not policy.try_acquire(request)
    assert not policy.should_notify(request)
    clock.now += 3.0
    assert policy.try_acquire(request), "it is the new rate that refills"


def test_what_is_said_has_no_codes_no_overrides_and_no_towers_of_marks() -> None:
    assert sanitize("\x02a\x0304,12b\x01\x7f\x85\r\nc\x00\x04ff0000d") == "ab\ncd"
    assert sanitize("\u202egnp.exe") == "gnp.exe"
    assert sanitize("z" + "\u0300" * 900 + "y") == "z" + "\u0300" * 4 + "y"
    assert sanitize("half \ud800 pair") == "half ? pair"


def test_the_modes_of_members_are_known_from_names_and_from_changes() -> None:
    story = Story()
    story.feed(
        *WELCOME,
        ":Terra!~t@host.example JOIN #c",
        ":s 353 Terra = #c :@Terra ~@owner %half bob",
        ":s 366 Terra #c :End of NAMES list",
    )
    roster = story.session.roster
    assert [roster.is_operator("#c", nick) for nick in ("Terra", "owner", "half", "bob")] == [
        *(True, True, False, False)
    ]
    story.feed(":owner!o@h MODE #c -o+lo+b Terra 5 bob x!*@*")
    assert [roster.is_operator("#c", nick) for nick in ("Terra", "bob")] == [False, True]


def test_who_is_a_bot_is_asked_where_the_server_knows_and_told_by_tags() -> None:
    story = Story()
    story.feed(*WELCOME[:-1], ":s 005 Terra BOT=B :are supported", WELCOME[-1])
    story.sent()
    story.feed(":Terra!~t@host.example JOIN #c", ":s 353 Terra = #c :Terra robot alice")
    assert "WHO #c" in story.sent()
    story.feed(
        ":s 366 Terra #c :End of NAMES list",
        ":s 352 Terra #c r h.example s robot HB :0 R",
        ":s 352 Terra #c a h.example s alice H :0 A",
    )
    said = (":robot!r@h PRIVMSG #c :hi", ":alice!a@h PRIVMSG #c :hi", "@bot :x!y@z PRIVMSG #c :hi")
    assert [event.bot for event in story.feed(*said)] == [True, False, True]
    assert story.reply(":late!l@h JOIN #c") == ["WHO late"]


def test_a_private_room_belongs_to_the_account_else_to_the_whole_mask() -> None:
    ada = Identity("Ada", "~Ada", "H.example")
    assert ada.room(str.lower) == "ada!~ada@h.example"
    assert replace(ada, nick="Eve", account="AdaL").room(str.lower) == "~adal"
    assert Identity("ada").room(str.lower) == "ada"  # nobody who speaks has that room
    rooms = {
        who.room(str.lower)
        for who in (
            ada,
            replace(ada, user="mal"),
            replace(ada, host="elsewhere"),
            replace(ada, account="ada"),
            replace(ada, account="mal"),
            Identity("ada"),
        )
    }
    assert len(rooms) == 6
    assert not [room for room in rooms if room.startswith(("#", "&", "+", "!"))]


def test_words_to_a_part_of_a_channel_have_a_place_of_their_own() -> None:
    story = inside()
    talk = story.feed(
        ":owner!o@h PRIVMSG #c :to all",
        ":owner!o@h PRIVMSG @#C :to operators",
        ":owner!o@h NOTICE +#c :to those with voice",
        ":owner!o@h PRIVMSG Terra :to us",
    )
    who = Identity("owner", "o", "h")
    places = [place_of(event, who, str.lower).channel for event in talk]
    assert places == ["#c", "@#c", "@+#c", "owner!o@h"]
    assert [status_of(event) for event in talk] == ["", "@", "+", ""]
    [kick] = story.feed(":owner!o@h KICK #c alice :out")
    assert place_of(kick, who, str.lower).channel == "#c"


@pytest.mark.parametrize("symbols", ["@", "+", "~&@%+", "&"])
@pytest.mark.parametrize("channel", ["#c", "##c", "#@c"])
def test_the_room_of_a_status_is_that_of_its_channel(symbols: str, channel: str) -> None:
    room = status_room(symbols, channel)
    assert room.startswith("@")
    assert channel_of_room(room) == channel


async def test_no_room_has_the_name_of_a_conversation_elsewhere() -> None:
    fold = str.lower
    network = Network("net", NetworkSettings(server="irc.example"))
    assert room_key(Place("net", "#x/ada"), fold) == "net/#x%2Fada"
    assert room_key(Place("net", "#x%2fada"), fold) == "net/#x%252fada"
    ada = Identity("ada", "a", "user/ada")
    request = requested(network, ada, Place("net", ada.room(fold)), "ada!a@user/ada")
    on_channel = replace(request, place=Place("net", "#x"), recipient="#x")
    of_ada = on_channel.conversation
    assert of_ada == "net/#x/ada!a@user%2Fada"
    for name in (of_ada, request.conversation):
        assert request.owns(name)
    for name in (f"{of_ada}/ada", "net/#x/ada", "net/#ada!a@user%2Fada", f"other{of_ada}"):
        assert not request.owns(name)


def test_no_group_opens_a_private_room() -> None:
    here = Place("net", "#c")
    groups = [["#c", "#d", "ada!a@h", "net/~ada", "@#c"]]
    assert scope_of(here, groups) == Scope.from_places(here, Place("net", "#d"))
    room = Place("net", "~ada")
    assert scope_of(room, groups) == Scope.from_places(room)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Terra: what is this about?", "what is this about?"),
        ("terra, what is this about?", "what is this about?"),
        ("Terra; what is this about?", "what is this about?"),
        ("Terra - what is this about?", "what is this about?"),
        ("@Terra what is this about", "what is this about"),
        ("Terra what is this about?", "what is this about?"),
        ("what is this about, Terra?", "what is this about?"),
        ("thank you, terra", "thank you"),
        ("hey Terra, what is this about?", "what is this about?"),
        ("hallo @terra: was ist das", "was ist das"),
        ("\x02\x0304Terra\x03:\x02 what is this about?", "what is this about?"),
        ("Terra?", ""),
        ("Terra is broken again", None),
        ("I told Terra, and she forgot", None),
        ("Terracotta: is it waterproof?", None),
        ("the moon of Terra?", None),
        ("Terra-4 is a rocket?", None),
    ],
)
def test_a_line_that_addresses_our_nick_is_a_question(text: str, words: str | None) -> None:
    parsed = parse_command(sanitize(text), prefix=".", nicks=("Terra",), private=False)
    assert parsed == (None if words is None else ParsedCommand("terrarium", words))
