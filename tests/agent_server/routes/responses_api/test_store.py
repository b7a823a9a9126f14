"""Responses that the server keeps, for whom, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from storage.usage.api_keys import Key
from tests.kit.agent_server import agent_client
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.server_keys import make_keys

pytest_plugins = ("tests.kit.scripted_server",)


async def test_a_response_is_kept_until_it_is_deleted(openai: AsyncOpenAI) -> None:
    made = await openai.responses.create(model="terra", input="x")
    assert (await openai.responses.retrieve(made.id)).output_text == made.output_text
    await openai.responses.delete(made.id)
    with pytest.raises(NotFoundError):
        await openai.responses.retrieve(made.id)
    with pytest.raises(NotFoundError):
        await openai.responses.delete(made.id)
    with pytest.raises(BadRequestError) as failure:
        await openai.responses.create(model="terra", input="x", previous_response_id=made.id)
    assert failure.value.code == "previous_response_not_found"
    assert failure.value.param == "previous_response_id"


async def test_a_response_that_is_not_to_be_stored_is_not(openai: AsyncOpenAI) -> None:
    made = await openai.responses.create(model="terra", input="x", store=False)
    assert made.status == "completed"
    with pytest.raises(NotFoundError):
        await openai.responses.retrieve(made.id)


async def test_a_stream_is_kept_when_it_is_complete(openai: AsyncOpenAI) -> None:
    async with openai.responses.stream(model="terra", input="x") as stream:
        made = await stream.get_final_response()
    assert (await openai.responses.retrieve(made.id)).status == "completed"


async def test_one_key_does_not_see_the_responses_of_another(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    async with agent_client({"upstream": script.url}, None, tmp_path) as http:
        keys = await make_keys(http, tmp_path, Key("irc"), Key("web"))
        irc, web = keys["irc"], keys["web"]
        made = await http.post("/v1/responses", json={"input": "x"}, headers=irc)
        place = f"/v1/responses/{made.json()['id']}"
        for method in ("GET", "DELETE"):
            assert (await http.request(method, place, headers=web)).status_code == 404
        follow = {"input": "x", "previous_response_id": made.json()["id"]}
        assert (await http.post("/v1/responses", json=follow, headers=web)).status_code == 400
        assert (await http.get(place, headers=irc)).status_code == 200
