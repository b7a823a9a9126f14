"""docs/http.md has exactly the existing endpoints and pages, and all parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fastapi import FastAPI
from starlette.routing import Route

from agent_server.app import create_app
from agent_server.schemas.chat import ChatRequest
from harnesses.web.api import routes as api
from harnesses.web.app import PAGES as ROUTERS
from terrarium.config import Config
from tests.docs.reference import ROOT

TEXT = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
SERVER, _, REST = TEXT.partition("\n## The log\n")
LOG, _, PAGES = REST.partition("\n## Pages\n")
NOT_FIELDS = {"model", "modalities"}  # described in prose; "text" is all they may be


def server() -> FastAPI:
    return create_app(Config({"model": {"upstream": ["http://127.0.0.1:1"]}}, None, Path("data")))


def log() -> FastAPI:
    app = FastAPI()
    app.include_router(api.router)
    app.include_router(api.health)
    return app


def real(app: FastAPI) -> Iterator[tuple[str, set[str]]]:
    """Yield every endpoint with its query parameters."""
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            parameters = operation.get("parameters", ())
            names = {item["name"] for item in parameters if item["in"] == "query"}
            yield f"{method.upper()} {path}", names


def sections(text: str) -> dict[str, str]:
    """Return the sections of a part of the page, by endpoint."""
    parts = re.split(r"^### `", text, flags=re.M)[1:]
    return {part.split("`")[0]: part.split("\n## ")[0] for part in parts}


def test_the_endpoints_are_documented_and_the_query_parameters_of_the_log() -> None:
    assert set(sections(SERVER)) == {endpoint for endpoint, _ in real(server())}
    assert set(sections(LOG)) == {endpoint for endpoint, _ in real(log())}
    for endpoint, names in real(log()):
        text = sections(LOG)[endpoint]
        assert {name for name in names if f"`{name}`" not in text} == set(), endpoint


def test_every_field_of_a_chat_request_is_documented() -> None:
    text = sections(SERVER)["POST /v1/chat/completions"]
    fields = ChatRequest.model_fields.keys() - NOT_FIELDS
    assert {name for name in fields if f"`{name}`" not in text} == set()


def test_every_page_is_documented() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    paths = {route.path.replace(":path", "") for route in routes if isinstance(route, Route)}
    assert paths == set(re.findall(r"`(/[^`]*)`", PAGES))
