"""Commands in plain words, and questions that only look like them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.client.profile import CAPABLE, TINY
from llm.intents.parser import may_ask_for_fact, read_intent

FACTS = ("favourite tea", "timezone")
COMMANDS = {
    "every monday at 9 sum up the week here": (
        "schedule",
        "every monday at 9 sum up the week here",
    ),
    "sum up the week here every monday at 9, please": (
        "schedule",
        "sum up the week here every monday at 9",
    ),
    "can you every morning at 8 tell us what happened here?": (
        "schedule",
        "every morning at 8 tell us what happened here",
    ),
    "jeden Montag um 9 fasse die Woche hier zusammen": (
        "schedule",
        "jeden Montag um 9 fasse die Woche hier zusammen",
    ),
    "fasse bitte jeden Freitag um 17 Uhr die Woche zusammen": (
        "schedule",
        "fasse bitte jeden Freitag um 17 Uhr die Woche zusammen",
    ),
    "täglich um 8 schreib uns eine Zusammenfassung": (
        "schedule",
        "täglich um 8 schreib uns eine Zusammenfassung",
    ),
    "remind me in 20 minutes to check the oven": ("remind", "in 20 minutes to check the oven"),
    "can you remind me tomorrow at 9 to call mum please": (
        "remind",
        "tomorrow at 9 to call mum",
    ),
    "Remind me to call Bob at 5pm": ("remind", "to call Bob at 5pm"),
    "set a reminder for 6pm: tea": ("remind", "at 6pm: tea"),
    "set a reminder for tomorrow at 9 to call mum": ("remind", "tomorrow at 9 to call mum"),
    "in 10 minutes remind me that the pasta is done": (
        "remind",
        "in 10 minutes that the pasta is done",
    ),
    "wake me at 7": ("remind", "at 7 wake up"),
    "set a timer for 10 minutes": ("remind", "10 minutes the time is up"),
    "set an alarm for 7": ("remind", "at 7 alarm"),
    "ping me in 10 minutes about the build": ("remind", "in 10 minutes about the build"),
    "don't let me forget to call bob at 5pm": ("remind", "to call bob at 5pm"),
    "remind me every monday at 9 to water the plants": (
        "remind",
        "every monday at 9 to water the plants",
    ),
    "erinnere mich in 20 Minuten an den Tee": ("remind", "in 20 Minuten an den Tee"),
    "erinner mich morgen um 9 daran, Mama anzurufen": (
        "remind",
        "morgen um 9 daran, Mama anzurufen",
    ),
    "stell einen Wecker auf 7 Uhr": ("remind", "at 7 Uhr alarm"),
    "remind me to buy milk": ("remind", "to buy milk"),
    "i need a reminder in 15 minutes to move the car": ("remind", "in 15 minutes to move the car"),
    "tell me in 10 minutes to lock the door": ("remind", "in 10 minutes to lock the door"),
    "in 20 minutes tell me to leave": ("remind", "in 20 minutes to leave"),
    "let me know in an hour that it is time": ("remind", "in an hour that it is time"),
    "start a 10 minute timer": ("remind", "10 minute the time is up"),
    "schedule a reminder for friday at 10:00 to call": ("remind", "friday at 10:00 to call"),
    "what did i ask you to remind me of?": ("reminders", ""),
    "when is my next reminder?": ("reminders", ""),
    "clear all my reminders": ("reminders", "cancel all"),
    "never mind the reminder about the cake": ("reminders", "cancel the cake"),
    "cancel the reminder for the oven, it is done": ("reminders", "cancel the oven"),
    "forget the reminder to ring dad because he rang": ("reminders", "cancel ring dad"),
    "i don't need the laundry reminder anymore": ("reminders", "cancel laundry"),
    "look up trombone in the log": ("search", "trombone"),
    "who else is here?": ("who", ""),
    "how many users are in here?": ("who", ""),
    "who is the most active here?": ("stats", ""),
    "what have i told you about myself?": ("memory", ""),
    "let's start a new conversation": ("clear", ""),
    "who made you?": ("about", "identity"),
    "what are my reminders?": ("reminders", ""),
    "do I have any reminders?": ("reminders", ""),
    "welche Erinnerungen habe ich?": ("reminders", ""),
    "cancel reminder 3": ("reminders", "cancel 3"),
    "please delete my reminder #3": ("reminders", "cancel 3"),
    "cancel all my reminders": ("reminders", "cancel all"),
    "cancel my reminder about tea": ("reminders", "cancel tea"),
    "lösche die Erinnerung 3": ("reminders", "cancel 3"),
    "remember that my tea = oolong": ("remember", "that my tea = oolong"),
    "remember that my favourite tea is oolong": ("remember", "that my favourite tea is oolong"),
    "can you remember that I live in Graz?": ("remember", "that I live in Graz"),
    "please remember my birthday is may 3": ("remember", "my birthday is may 3"),
    "remember: the key is at bob's": ("remember", "the key is at bob's"),
    "merk dir, dass ich Tee mag": ("remember", "that ich Tee mag"),
    "what do you remember about me?": ("memory", ""),
    "what do you know about me": ("memory", ""),
    "was weißt du über mich?": ("memory", ""),
    "what is my favourite tea?": ("recall", "favourite tea"),
    "what's my favorite tea": ("recall", "favourite tea"),
    "do you know my timezone?": ("recall", "timezone"),
    "forget my favourite tea": ("forget", "my favourite tea"),
    "search for pump": ("search", "pump"),
    "find messages about the pump": ("search", "pump"),
    "can you search the log for the pump?": ("search", "pump"),
    "suche nach Pumpe": ("search", "Pumpe"),
    "who is here?": ("who", ""),
    "who's online right now?": ("who", ""),
    "wer ist da?": ("who", ""),
    "show me the stats": ("stats", ""),
    "who talks the most here?": ("stats", ""),
    "stop": ("stop", ""),
    "please stop talking": ("stop", ""),
    "forget our conversation": ("clear", ""),
    "let's start over": ("clear", ""),
    "vergiss unser Gespräch": ("clear", ""),
    "more please": ("more", ""),
    "help": ("help", ""),
    "what are your commands?": ("help", ""),
    "Hilfe!": ("help", ""),
    "what can you do?": ("about", "abilities"),
    "hey, what can you do for me?": ("about", "abilities"),
    "was kannst du?": ("about", "abilities"),
    "who are you?": ("about", "identity"),
    "what are you?": ("about", "identity"),
    "wer bist du": ("about", "identity"),
    "what model are you?": ("about", "model"),
    "which LLM do you use?": ("about", "model"),
    "are you ChatGPT?": ("about", "model"),
    "are you a bot?": ("about", "bot"),
    "bist du ein Mensch?": ("about", "bot"),
    "are you there?": ("ping", "there"),
    "what version are you running?": ("version", ""),
    "forget me": ("forget", "me"),
    "can you forget me?": ("forget", ""),
    "forget me?": ("forget", ""),
    "forget all my data": ("forget", ""),
    "please forget everything you know about me": ("forget", ""),
    "lösche alles, was du über mich weißt": ("forget", ""),
    "nolog": ("nolog", ""),
}


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_in_plain_words_is_recognised(text: str) -> None:
    intent = read_intent(text, FACTS)
    assert intent
    assert (intent.command, intent.words) == COMMANDS[text]


QUESTIONS = """
list all files that are written every day at 9 by cron
summarize what bob said every day
who writes here every day at 9?
every monday we sum up the week
every time I list files it fails
can you remind me what the capital of France is?
remind me again who won
tell me what the time is in Tokyo
tell me to what end we do this
let me know what you think
look up the capital of Japan
who made the first telephone?
remind me how to exit vim
remind me why we use tabs at 5pm
remind me of the rules
remind me what we did on monday
you remind me of my cat
what does this remind you of
who can remind me of bob's number at 5
is there a reminder app
remind bob to come at 5
in the morning I drink tea
when is my reminder due
cancel my subscription
cancel culture
delete all files
wake me up before you go-go
wake up
alarm bells are ringing
set a timer
timer interrupts in C
remember the alamo?
remember the alamo
remember when we met?
remember that time we went to Rome?
remember that song from yesterday
remember me?
do you remember me?
do you remember what I said
I don't remember
can you remember things?
remember to breathe
remember that you are a pirate
note that python 2 is dead
what is memory
what is my purpose
what is my ip
what is my name
who is my neighbour
forget it
forget everything
forget about it
please forget me for a while
don't log me
stop logging me
no logs please
forget my mistake
delete my account
search the web for cats
search engine for logs
what is binary search
search for the meaning of life
find me a recipe
find the square root of 2
look up the word serendipity
who is here to help me?
who is there a doctor
who is the president
who talks like that
how many messages can a queue hold
stop using tabs
how do I stop a process
why did you stop
what is a full stop
clear the table
how do I clear my cache
start over with a new recipe for bread
more tea?
tell me more about cats
one more question
help me with my homework
can you help me write a letter?
what can you do with a drunken sailor
what can you do about rust
what can I do?
who are you voting for
what are you doing
what are you talking about
what are they
which model of car is best
what model is this car
are you sure?
are you a fan of jazz
are you there yet with the build
what version of python is current
ping google.com
how do I ping a host
what is a ping
who said the pump is broken
when did bob last speak
""".strip().split("\n")


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_is_no_command(text: str) -> None:
    assert read_intent(text, FACTS) is None


@pytest.mark.parametrize(
    "text",
    [
        "remind me in 20 minutes to check the oven",
        "erinner mich morgen um 9 daran, Mama anzurufen",
        "cancel the reminder for the oven, it is done",
        "remember that I am allergic to nuts",
        "can you search the log for the pump?",
        "forget my favourite tea",
        "let's start over",
        "forget me",
    ],
)
def test_a_command_consumed_to_its_last_word_needs_no_model(text: str) -> None:
    intent = read_intent(text, FACTS)
    assert intent
    assert CAPABLE.may_shortcut(intent.free)


COMPOUND = """
remind me in 2 hours to check the oven and also tell me what bob said about the transcoder
remind me in 2 hours to check the oven, and what did bob say?
remind me at 5pm to tell ada why it broke
erinnere mich morgen um 9 an die Feuchtigkeitssensoren und sag mir, was dieter dazu gesagt hat
in 10 minutes remind me that the pasta is done and who wanted some
tell me in 10 minutes to lock the door, and who has the key
search for the pump thing and summarise it in one line
search the log for who broke staging and tell me
cancel the reminder for the oven, and tell me what the others are having for dinner tonight
forget my favourite tea is oolong and tell me another one
remember that my sister is here on friday at ten and needs a lift from the station
can you every morning at 8 tell us what happened here?
every monday at 9 sum up the week and ask who is on duty
""".strip().split("\n")


@pytest.mark.parametrize("text", COMPOUND)
def test_a_command_that_may_hold_another_request_is_left_to_a_capable_model(text: str) -> None:
    intent = read_intent(text, FACTS)
    assert intent
    assert TINY.may_shortcut(intent.free)
    assert not CAPABLE.may_shortcut(intent.free)


def test_a_fact_is_only_looked_up_when_it_is_known() -> None:
    assert may_ask_for_fact("what is my favourite tea?")
    assert not may_ask_for_fact("what is tea?")
    assert read_intent("what is my favourite tea?") is None
    assert read_intent("forget my favourite tea") is None


@given(st.text(max_size=80))
def test_any_text_is_read(text: str) -> None:
    intent = read_intent(text, FACTS)
    assert intent is None or intent.command


@pytest.mark.parametrize(
    "text", ["remind me " * 39, "in " * 130, "a " * 190, "remember that " * 28]
)
def test_a_strange_text_is_soon_done_with(text: str) -> None:
    read_intent(text, FACTS)
