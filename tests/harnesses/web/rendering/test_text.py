"""Untrusted text on a page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup, escape

from harnesses.web.rendering.text import (
    NICK_COLOURS,
    answer_html,
    nick_colour,
    render_line,
    strip_formatting,
)


def test_html_stays_text_and_formatting_and_overrides_are_left_out() -> None:
    assert render_line("<script>") == Markup("&lt;script&gt;")
    assert "<img" not in render_line('"><img src=x onerror=alert(1)>')
    assert strip_formatting("\x02bold\x02 \x0304,12red\x03 \x04ff0000hex\x0f a\x00b\x1bc") == (
        "bold red hex abc"
    )
    assert strip_formatting("exe.\u202egpj\u2066 a\u2069") == "exe.gpj a"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("see http://a.example/b?c=d&e=f.", "http://a.example/b?c=d&amp;e=f"),
        ("(https://en.example/wiki/Frog_(animal))", "https://en.example/wiki/Frog_(animal)"),
        ("<https://a.example/>", "https://a.example/"),
        *((text, "") for text in ("javascript:alert(1)", "data:text/html,x", "http://")),
    ],
)
def test_an_address_becomes_a_link_without_the_punctuation_around_it(
    text: str, address: str
) -> None:
    assert (f'<a href="{address}"' in render_line(text)) == bool(address)
    assert ("<a" in render_line(text)) == bool(address)


def test_what_was_found_is_marked_also_among_formatting_and_addresses() -> None:
    assert render_line("Frogs <b> frog", [(0, 5), (7, 8)]) == Markup(
        "<mark>Frogs</mark> &lt;<mark>b</mark>&gt; frog"
    )
    assert render_line("\x02a\x02 \x0304,02red frog", [(14, 18)]) == Markup(
        "a red <mark>frog</mark>"
    )
    marked = render_line("at http://frogs.example/b now", [(10, 15), (24, 29)])
    assert '<a href="http://frogs.example/b"' in marked
    assert ">http://<mark>frogs</mark>.example/<mark>b</mark></a><mark> now</mark>" in marked


@st.composite
def marked_texts(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    text = draw(st.text() | st.from_regex(r"https?://\S+ \S*"))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return text, list(zip(cuts[::2], cuts[1::2], strict=False))


@given(marked_texts())
def test_no_text_can_open_an_element_of_its_own(found: tuple[str, list[tuple[int, int]]]) -> None:
    text, marks = found
    html = render_line(text, marks)
    rest = html.replace("<mark>", "").replace("</mark>", "").replace("</a>", "")
    assert all(part.startswith('a href="http') for part in rest.lower().split("<")[1:])
    assert (
        Markup(html).striptags().split()
        == Markup(escape(strip_formatting(text))).striptags().split()
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pkg/__init__.py is 2*3*4 lines", "pkg/__init__.py is 2*3*4 lines"),
        ("C:\\*.txt has *.md and R&amp;D in it", "C:\\*.txt has *.md and R&amp;amp;D in it"),
        ("a *b*, **c d**, (_e_) and snake_case", None),
    ],
)
def test_plain_text_is_shown_as_it_was_written(text: str, shown: str | None) -> None:
    emphasized = "a <em>b</em>, <strong>c d</strong>, (<em>e</em>) and snake_case"
    assert answer_html(text) == f"<p>{shown or emphasized}</p>\n"


def test_markdown_is_formatted_and_steps_keep_their_numbers() -> None:
    html = answer_html("**two** frogs:\n\n- a `b`\n\n| x |\n|---|\n| 1 |")
    for expected in ("<strong>two</strong>", "<li>a <code>b</code></li>", "<td>1</td>"):
        assert expected in html
    assert '<ol start="2">' in answer_html("1. pull:\n```\ngit pull\n```\n2. build")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "![x](https://evil.example/track.png)",
        "<a href='javascript:alert(1)'>x</a>",
        "```html\n<svg onload=alert(1)>\n```",
    ],
)
def test_nothing_that_a_model_writes_can_run_or_load(text: str) -> None:
    html = answer_html(text).lower()
    for harmful in ("<script", "<img", "<svg", 'href="javascript', "<a href='"):
        assert harmful not in html


def test_a_nick_keeps_its_colour_with_a_tail_or_another_case() -> None:
    assert nick_colour("Ada") == nick_colour("ada_") == nick_colour("ADA2")
    assert all(nick_colour(nick) in range(NICK_COLOURS) for nick in ("", "_", "42", "ą"))
