"""The few words of a tiny model: given only if it is sure of them."""

from __future__ import annotations

import math

import pytest

from llm.agent.short_answer import ask_shortly
from llm.client.client import AgentClient, RequestOptions
from llm.client.settings import AgentSettings
from llm.messages.errors import Unsure
from llm.messages.message import Message, ModelReply
from storage.usage.usage import TokenUsage
from tests.kit.openai_script import Answer, ScriptedOpenAI

CALL = RequestOptions("irc/#pond")
SURE, LIKELY, UNSURE = math.log(0.9), math.log(0.4), math.log(0.03)


async def answer(
    script: ScriptedOpenAI, question: str, before: list[Message] | None = None
) -> ModelReply:
    """The answer to a question, by a model that the script plays."""
    settings = AgentSettings(api_url=script.url)
    used: list[TokenUsage] = []
    async with AgentClient.open(settings, lambda _, usage: used.append(usage)) as client:
        reply = await ask_shortly(client, CALL, question, before or [])
        assert reply.usage == sum(used, TokenUsage())
        return reply


async def test_what_the_model_is_sure_of_is_asked_once() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer(" lima", logprob=SURE))
        assert (await answer(script, "what is the capital of peru?")).text == "Lima."
        [asked] = script.requests
    assert asked["prompt"].endswith("Question: what is the capital of peru?\nAnswer:")
    assert asked["temperature"] == 0


async def test_a_number_is_an_answer() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer(" 8", logprob=LIKELY), Answer("A spider has 8.", logprob=UNSURE))
        assert (await answer(script, "how many legs does a spider have?")).text == "8."


async def test_a_sentence_is_given_if_the_model_is_sure_of_what_it_tells() -> None:
    async with ScriptedOpenAI() as script:
        sentence = Answer("J.K. Rowling wrote Harry Potter. She was born", logprob=LIKELY)
        script.answer(Answer(" Potter", logprob=SURE), sentence)
        reply = await answer(script, "who wrote harry potter?")
        chat = script.requests[1]
    assert reply.text == "J.K. Rowling wrote Harry Potter."
    assert [each["content"] for each in chat["messages"]] == ["who wrote harry potter?"]


@pytest.mark.parametrize(
    ("few", "sentence", "is_given"),
    [
        (" Lima", "Lima is the capital. It lies on", True),
        (" Lima", "Cuzco was it.", False),
        (" Lima, Cuzco", "It is Lima.", False),
        (" 8 million", "There are 8 of them.", False),
    ],
)
async def test_what_is_only_likely_is_given_if_a_sentence_says_it_too(
    few: str, sentence: str, is_given: bool
) -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer(few, logprob=LIKELY), Answer(sentence, logprob=UNSURE))
        if is_given:
            assert (await answer(script, "capital of peru?")).text == "Lima."
        else:
            with pytest.raises(Unsure, match=sentence):
                await answer(script, "capital of peru?")
        assert len(script.requests) == 2


@pytest.mark.parametrize(
    ("said", "logprob"), [(" Lima", UNSURE), (" Peru", SURE), ("", SURE), (" The capital", SURE)]
)
async def test_a_guess_and_an_echo_are_no_answers(said: str, logprob: float) -> None:
    async with ScriptedOpenAI() as script:
        script.answer(*[Answer(said, logprob=logprob)] * 2)
        with pytest.raises(Unsure):
            await answer(script, "what is the capital of peru?")


async def test_a_question_that_follows_up_comes_after_the_one_before() -> None:
    before: list[Message] = [
        {"role": "user", "content": "Question: capital of peru?\nAnswer:"},
        {"role": "assistant", "content": "Lima."},
    ]
    async with ScriptedOpenAI() as script:
        script.answer(Answer(" Quito", logprob=SURE))
        await answer(script, "and of ecuador?", before)
        told = script.requests[0]["prompt"]
    assert "Answer: Lima.\n\nQuestion: and of ecuador?\nAnswer:" in told
