"""An answer is plain text, or an object that also says how it is with the conversation."""

from __future__ import annotations

import pytest

from llm.parsing.structured_output import FOLLOW_UP, Output, OutputSplitter, read_output


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("Hello.", Output("Hello.")),
        ('{"response": "Hello.", "status": "active"}', Output("Hello.", "active")),
        (' {"status": "closed", "response": "Bye."}\n', Output("Bye.", "closed")),
        ('```json\n{"response": "Hello."}\n```', Output("Hello.")),
        ("{'response': 'Hello.', 'status': 'idle',}", Output("Hello.", "idle")),
        ('{"response": "Hello."} As you wish.', Output("Hello.")),
        ('{"response": "Hello, how a', Output("Hello, how a")),
        ('{"response": "Hello.", "status": "glad"}', Output("Hello.")),
        ('{"response": "Hello.", "status": ["active"]}', Output("Hello.")),
        ('{"response": "", "status": "idle"}', Output("", "idle", silent=True)),
        ('{"status": "idle"}', Output("", "idle", silent=True)),
        ('{"resp', Output("")),
        ('{"response": {"a": 1}}', Output('{"response": {"a": 1}}')),
        ('{"response" is the key', Output('{"response" is the key')),
        ('{"a": 1}', Output('{"a": 1}')),
        ("{}", Output("{}")),
        ("```", Output("```")),
        ("", Output("")),
    ],
)
def test_an_answer_is_read(text: str, output: Output) -> None:
    assert read_output(text) == output
    for pieces in ([text], list(text)):
        splitter = OutputSplitter()
        shown = "".join([*map(splitter.feed, pieces), splitter.finish()])
        assert shown.strip() == output.text.strip()
        assert (splitter.output.status, splitter.output.silent) == (output.status, output.silent)


def test_an_object_is_held_back_and_text_is_not() -> None:
    splitter = OutputSplitter()
    assert splitter.feed('{"respon') == ""
    assert splitter.feed('se": "Hello') == ""
    assert splitter.finish() == "Hello"
    splitter = OutputSplitter()
    assert splitter.feed("{") == ""
    assert splitter.feed(' "a"') == '{ "a"'
    assert splitter.feed(" x") == " x"
    assert splitter.finish() == ""


def test_the_status_says_when_to_speak_again() -> None:
    assert FOLLOW_UP == {"awaiting_answer": 180, "idle": 1800, "closed": 14400}
