"""Images with a question in the chat box: for models that see, and for those that do not."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from harnesses.core.tendril.responder import BLIND
from llm.messages.message import MAX_IMAGE_SIZE
from tests.kit.browser import browser, visit
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.web_site import WebSite, web_site


def png(width: int = 8, height: int = 8) -> bytes:
    """A PNG file of black, not compressed."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        size, check = (struct.pack(">I", each) for each in (len(data), zlib.crc32(kind + data)))
        return size + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(width + 1) * height, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def encoded(image: bytes) -> str:
    return base64.b64encode(image).decode()


def images(body: dict[str, Any]) -> list[str]:
    """The addresses of the images in a chat request."""
    contents = [message["content"] for message in body["messages"]]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


async def test_an_image_is_shown_to_a_model_that_sees_and_kept_nowhere(
    script: ScriptedOpenAI, chat: WebSite
) -> None:
    script.able = {"vision": True}
    script.say("A frog.").say("A green one.")
    picture = png()
    assert (await chat.ask("what is that?", image=encoded(picture)))[-1]["ok"]
    words, shown = script.requests[0]["messages"][-1]["content"]
    assert words["text"].endswith("visitor asks: what is that?")
    address = f"data:image/png;base64,{encoded(picture)}"
    assert shown == {"type": "image_url", "image_url": {"url": address}}
    await chat.ask("and which colour has it?")
    assert "what is that?" in str(script.requests[1]["messages"])
    assert images(script.requests[1]) == []
    files = [path.read_bytes() for path in chat.data.rglob("*") if path.is_file()]
    assert not any(data in kept for kept in files for data in (picture[8:], address.encode()))
    # It stays with its question while tools are used.
    script.call("search_log", {"query": "frog"}).say("A frog.")
    assert (await chat.ask("who spoke of that?", image=encoded(picture)))[-1]["ok"]
    assert [len(images(body)) for body in script.requests[2:]] == [1, 1]
    *_, question, call, result = script.requests[-1]["messages"]
    assert isinstance(question["content"], list)
    assert (call["role"], result["role"]) == ("assistant", "tool")


@pytest.mark.parametrize("able", [{}, {"vision": False}, {"vision": None}])
async def test_a_model_that_may_not_see_is_not_asked(
    script: ScriptedOpenAI, chat: WebSite, able: dict[str, Any]
) -> None:
    script.able = able
    (told,) = await chat.ask("what is that?", image=encoded(png()))
    assert (told["ok"], BLIND in told["html"]) == (False, True)
    assert script.requests == []
    assert (await chat.ask("and in words?"))[-1]["ok"]


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (encoded(b"<svg onload=alert(1)>"), "PNG, JPEG, GIF or WebP"),
        ("no base64!", "image"),
        (encoded(b"\xff\xd8\xff" + b"x" * MAX_IMAGE_SIZE), "image"),
    ],
)
async def test_what_is_no_image_or_too_large_is_refused(
    site: WebSite, image: str, words: str
) -> None:
    answer = await site.http.post("/chat", json={"text": "look", "image": image})
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


async def test_an_image_is_pasted_or_chosen_removed_and_made_smaller_when_it_is_too_large(
    tmp_path: Path,
) -> None:
    script = ScriptedOpenAI()
    script.able = {"vision": True}  # before the tendril asks for the card
    async with script, web_site(tmp_path, agent_url=script.url) as site, browser() as chromium:
        page = await visit(chromium, f"{site.url}/chat")
        box, status = page.get_by_role("textbox", name="Your message"), page.get_by_role("status")
        pasted = """bytes => {
            const files = new DataTransfer();
            const data = Uint8Array.from(atob(bytes), each => each.charCodeAt(0));
            files.items.add(new File([data], "frog.png", { type: "image/png" }));
            const paste = new ClipboardEvent("paste", { clipboardData: files, cancelable: true });
            document.querySelector("textarea").dispatchEvent(paste);
        }"""
        await page.evaluate(pasted, encoded(png()))
        await expect(status).to_contain_text("Image attached: frog.png")
        await page.get_by_role("button", name="Remove").click()
        await expect(status).to_be_hidden()
        await page.evaluate(pasted, encoded(png()))
        script.say("A frog.")
        await box.fill("what is that?")
        await box.press("Enter")
        await expect(page.locator(".asked").last).to_contain_text("[image]")
        await expect(page.locator(".answered").last).to_contain_text("A frog.")
        large = {"name": "large.png", "mimeType": "image/png", "buffer": png(2_000, 2_000)}
        await page.get_by_label("Attach").set_input_files(large)  # type: ignore[arg-type]
        script.say("A large one.")
        await box.fill("and that?")
        await box.press("Enter")
        await expect(page.locator(".answered").last).to_contain_text("A large one.")
        await expect(status).to_be_hidden()
    first, second = (images(body) for body in script.requests)
    assert first == [f"data:image/png;base64,{encoded(png())}"]
    assert second[0].startswith("data:image/jpeg;base64,")
    assert len(second[0]) < MAX_IMAGE_SIZE
