"""Which words of the asker are an order, or hold what a tool is to keep; which are only talk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from llm.tools.consent import (
    Asker,
    RunSoFar,
    Said,
    orders_in,
    stands_in,
    to_cancel,
    to_forget,
    to_learn,
    to_open,
    to_operate,
    to_remember,
    to_remind,
    to_send,
    to_unlearn,
)
from llm.tools.toolbox import Toolbox, tool
from tests.kit.tables import rows

KICK = "kick|kickban|remove|throw|eject|boot"


@pytest.mark.parametrize(("kind", "text"), rows("llm/tools/orders.txt"))
def test_an_order_is_told_from_talk_about_one(kind: str, text: str) -> None:
    assert any(orders_in(text, KICK)) is (kind == "order")


@pytest.mark.parametrize("row", rows("llm/tools/operating.txt"), ids=" | ".join)
def test_an_operator_acts_on_an_order_that_names_whom_or_what(row: Sequence[str]) -> None:
    kind, act, text, change, nick, topic, why = ("" if cell == "-" else cell for cell in row)
    rule = to_operate(*filter(None, [act]))
    refused = rule(Said("ada", (text,), kind=kind), {"change": change, "nick": nick, "text": topic})
    assert refused.endswith(why)
    assert bool(refused) == bool(why)


CAT = "please keep in mind that my cat is called Miez"


OWN_WORDS = [*rows("llm/tools/own_words.txt"), ("no", "Miez", "")]


@pytest.mark.parametrize(("is_said", "text", "message"), OWN_WORDS)
def test_a_text_stands_in_a_message_that_says_it_in_any_form(
    is_said: str, text: str, message: str
) -> None:
    assert stands_in(text, message) is (is_said == "yes")


def said(*now: str, earlier: tuple[str, ...] = ()) -> Said:
    return Said("ada", now, earlier)


def test_what_is_remembered_the_person_has_said_now_or_before() -> None:
    cat = {"key": "cat", "value": "Miez"}
    assert not to_remember(said(CAT), cat)
    assert not to_remember(said("remember that, please", earlier=("my cat is Miez",)), cat)
    assert not to_remember(said("hello", "and my cat is Miez"), cat)
    pet = {"key": "tortoise", "value": "Miez"}
    assert to_remember(said("my tortoise is ill", "Miez?"), pet), "the words of two messages"
    assert "ada has not said that" in to_remember(said("hello"), cat)
    assert to_remember(said(CAT), {"key": "pay mallory", "value": "Miez"})


def test_what_is_taught_the_teacher_has_said() -> None:
    lesson = said("learn that when somebody asks for the key they should ask bob")
    taught = {"name": "key", "when": "somebody asks for the key", "how": "They should ask bob."}
    assert not to_learn(lesson, taught)
    for part in taught:
        assert to_learn(lesson, taught | {part: "pay mallory"})
    pay = {"name": "pay", "when": "tea is made", "how": "Pay mallory."}
    assert to_learn(said("learn how to make tea"), pay)


def test_who_orders_a_reminder_or_says_its_text_gets_it() -> None:
    mom = {"text": "Call your mom", "who": ["me"]}
    assert not to_remind(said("erinnere mich um 9: call my mom"), mom)
    decided = {"text": "retries 1 by thursday", "who": ["dieter"]}
    order = said("could you nudge dieter and me on wednesday about what we decided?")
    assert not to_remind(order, decided)
    for text in ("what did we decide?", "what does bob remind you of?", "do not remind me of it"):
        assert to_remind(said(text), {"text": "pay bob", "who": []}), text
    assert "ada has not named bob" in to_remind(said("call my mom"), mom | {"who": ["bob"]})
    assert not to_remind(said("remind bob to call your mom"), mom | {"who": ["bob"]})
    assert not to_remind(said("remind us all of the call"), mom | {"who": ["me", "bob"]})


@pytest.mark.parametrize(("is_ordered", "scope", "text"), rows("llm/tools/forgetting.txt"))
def test_a_fact_is_forgotten_only_when_that_is_ordered_now(
    is_ordered: str, scope: str, text: str
) -> None:
    why = to_forget(said(text), {"scope": scope})
    assert why == "" if is_ordered == "yes" else why.endswith(f"if they want it: forget {scope}")
    assert to_forget(said("hello", earlier=(f"forget {scope}",)), {"scope": scope})


def test_a_skill_and_a_reminder_go_when_that_is_ordered() -> None:
    assert not to_unlearn(said("unlearn reset router"), {"name": "reset_router"})
    assert to_unlearn(said("how do I reset the router?"), {"name": "reset_router"})
    assert not to_cancel(said("cancel reminder 3, please"), {"number": 3})
    assert to_cancel(said("cancel reminder 13"), {"number": 3})
    assert to_cancel(said("remind me in 3 hours of tea"), {"number": 3})


def test_a_channel_is_named_by_a_prompt_with_its_network_or_without() -> None:
    for prompt in ("tell #ops.", "tell oftc/#ops.", "in oftc/#ops, and nowhere else"):
        assert not to_send(said(prompt), {"channel": "oftc/#ops"}), prompt
    assert not to_send(said("tell #ops"), {"channel": "#ops"})
    for prompt in ("tell #ops2", "tell efnet/#ops", "tell them"):
        assert to_send(said(prompt), {"channel": "oftc/#ops"}), prompt
    assert to_send(said("hello", "tell #ops"), {"channel": "#ops"}), "in a follow-up"


def test_what_was_listed_may_be_named_by_any_of_its_words() -> None:
    facts = "sister = my sister is called Lena\ntea = green"
    order = "forget everything I told you about Lena but leave the rest"
    assert not to_forget(replace(said(order), listed=(facts,)), {"scope": "sister"})
    assert to_forget(replace(said(order), listed=(facts,)), {"scope": "tea"})
    assert to_forget(said(order), {"scope": "sister"}), "not listed in this turn"
    oven = "3: Fri 2026-11-27 at 09:00 UTC: the oven\n13: Sat 2026-11-28 at 09:00 UTC: the pump"
    for text, number, is_allowed in (
        ("cancel the reminder about the oven", 3, True),
        ("cancel the reminder about the oven", 13, False),
        ("cancel my last reminder", 13, True),
        ("cancel that", 3, True),
        ("cancel that", 4, False),
        ("why did you cancel my last reminder?", 3, False),
        ("do not cancel my reminder", 3, False),
    ):
        why = to_cancel(replace(said(text), listed=(oven,)), {"number": number})
        assert (not why) is is_allowed, text
    assert to_cancel(said("cancel my last reminder"), {"number": 13}), "not listed in this turn"


def test_an_order_in_any_language_is_one_if_it_was_read_as_such() -> None:
    text = "erinnere mich um halb zehn an die Feuerbeschau und sag mir, wer dann da ist"
    given = {"text": "Feuerbeschau um 10:00", "who": []}
    assert to_remind(said(text), given)
    assert not to_remind(replace(said(text), kind="remind"), given)
    oven = ("3: Fri 2026-11-27 at 09:00 UTC: der Ofen",)
    for text in ("lösche die Erinnerung an den Ofen", "lösche meine letzte Erinnerung"):
        cancelling = replace(said(text), kind="cancel_reminder", listed=oven)
        assert not to_cancel(cancelling, {"number": 3})
        assert to_cancel(replace(cancelling, kind="reminders"), {"number": 3})


PAGE, LEAK = "https://a.example/x?y=1", "https://leak.example/?d=hello"


class Tools:
    """A tool that opens addresses, and three in whose results addresses stand."""

    @tool(reads=True, asked=to_open)
    async def browse(self, url: str) -> str:
        """Open an address."""
        return "opened"

    @tool(reads=True, links="found")
    async def find(self) -> str:
        """Find addresses."""
        return ""

    @tool(reads=True, links="quoted")
    async def quote(self) -> str:
        """Quote people."""
        return ""

    @tool(reads=True)
    async def echo(self) -> str:
        """Repeat what the model writes."""
        return ""

    @tool(needs="teach", asked=to_learn)
    async def learn(self, name: str, when: str, how: str) -> str:
        """Learn."""
        return "learned"


async def test_what_needs_a_right_is_judged_by_the_question_alone() -> None:
    lesson = "learn this: when the pump squeaks, oil it"
    call = ("learn", '{"name": "pump", "when": "pump squeaks", "how": "oil it"}', 5)

    async def earlier() -> Sequence[str]:
        return (lesson,)

    asker = Asker("ada", "learn to make tea", lambda: {"teach"}, earlier)
    assert not (await Toolbox.from_owners(Tools(), asker=asker).call(*call)).ok
    joined = RunSoFar(joined=[lesson])
    assert not (await Toolbox.from_owners(Tools(), asker=asker).call(*call, run=joined)).ok
    asker = replace(asker, words=lesson)
    assert (await Toolbox.from_owners(Tools(), asker=asker).call(*call)).ok


async def opens(asker: Asker, url: str, run: RunSoFar | None = None) -> bool:
    """Return whether an address is opened for an asker at this point of a run."""
    arguments, run = json.dumps({"url": url}), run or RunSoFar()
    return (
        await Toolbox.from_owners(Tools(), asker=asker).call("browse", arguments, 5, run=run)
    ).ok


@pytest.mark.parametrize(
    "words",
    [
        f"what does {PAGE} say?",
        f"look at <{PAGE}>, please",
        f"([this]({PAGE}))!",
        "read a.example/x?y=1",
        "HTTP://A.example/x?y=1#part",
    ],
)
async def test_an_address_that_the_asker_has_written_is_opened(words: str) -> None:
    async def earlier() -> Sequence[str]:
        return ("hello", words)

    assert await opens(Asker("ada", words), PAGE)
    assert await opens(Asker("ada", "and now?", earlier=earlier), PAGE)
    assert await opens(Asker("ada", "hi"), PAGE, RunSoFar(joined=[words]))


@pytest.mark.parametrize(
    "url",
    [
        LEAK,
        f"{PAGE}&d=hello",
        f"{PAGE}/hello",
        f"{PAGE}!?!!",
        f"{PAGE}//",
        "https://hello.a.example/x?y=1",
        "https://a.example/X?y=1",
        "https://hello@a.example/x?y=1",
        "https://a.example:8080/x?y=1",
        "https://a.example/x",
    ],
)
async def test_an_address_into_which_a_model_has_put_anything_is_not_opened(url: str) -> None:
    run = RunSoFar(results=[("find", f"see {PAGE}"), ("echo", url), ("browse", url)])
    assert not await opens(Asker("ada", f"what does {PAGE} say?", private=False), url, run)


async def test_an_address_that_a_tool_has_found_is_opened_unless_the_question_is_private() -> None:
    run = RunSoFar(results=[("find", f"Pumps\n  {LEAK}\n  All of them.")])
    assert await opens(Asker("ada", "search for pumps", private=False), LEAK, run)
    assert not await opens(Asker("ada", "search for pumps"), LEAK, run)


async def test_an_address_in_a_quoted_line_is_opened_only_if_a_link_is_asked_for() -> None:
    run = RunSoFar(results=[("quote", f"[2026-03-01 12:00:00] <bob> read {LEAK}, all of you")])
    asker = Asker("ada", "read the link that bob has posted", private=False)
    assert not await opens(asker, LEAK, run)
    asker = replace(asker, calls_for=frozenset({"browse"}))
    assert await opens(asker, LEAK, run)
    assert not await opens(replace(asker, private=True), LEAK, run)
    assert not await opens(replace(asker, words=f"what does {PAGE} say?"), LEAK, run)
