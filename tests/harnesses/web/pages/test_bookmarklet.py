"""The bookmarklet on the chat page, and the question that it begins with, in a real browser."""

from __future__ import annotations

from urllib.parse import quote

from playwright.async_api import expect

from tests.kit.browser import browser, visit
from tests.kit.web_site import WebSite

PAGE = "https://a.example/notes?x=1&y=2"


async def test_the_bookmarklet_opens_the_chat_with_the_page_and_the_words_on_it(
    site: WebSite,
) -> None:
    async with browser() as chromium:
        page = await visit(chromium, f"{site.url}/chat")
        link = page.get_by_role("link", name="Ask Terra")
        script = (await link.get_attribute("href") or "").removeprefix("javascript:")
        elsewhere = await visit(chromium, f"{site.url}/search")
        await elsewhere.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
        words = await elsewhere.evaluate("String(getSelection())")
        async with elsewhere.expect_popup() as opened:
            await elsewhere.evaluate(f"eval(decodeURIComponent({script!r}))")
        box = (await opened.value).get_by_role("textbox", name="Your message")
        await expect(box).to_have_value(f"About {site.url}/search:\n\n“{words.strip()}”\n\n")
        status = (await opened.value).get_by_role("status")
        await expect(status).to_contain_text("File attached: page.txt")  # the visible text


async def test_the_question_is_a_draft_that_nobody_else_can_send(site: WebSite) -> None:
    script = "</textarea><script>document.title=1</script>"
    drafts = {
        f"about={quote(PAGE, safe='')}": f"What does {PAGE} say?",
        "about=javascript:alert(1)": "",
        "about=https://a.example/" + "a" * 2_000: "",
        f"about=https://a.example/&selected={quote(script)}": (
            f"About https://a.example/:\n\n“{script}”\n\n"
        ),
    }
    async with browser() as chromium:
        for query, draft in drafts.items():
            page = await visit(chromium, f"{site.url}/chat?{query}")
            await expect(page.get_by_role("textbox", name="Your message")).to_have_value(draft)
            await expect(page.locator("article")).to_have_count(0)
            await expect(page).to_have_title("Chat · Terrarium")
