"""An answer is plain text, or an object that also says how it is with the conversation."""

from __future__ import annotations

import pytest

from llm.parsing.stream_parser import OutputSplitter, StructuredOutput, read_output


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("Hello.", StructuredOutput("Hello.")),
        ('{"response": "Hello.", "status": "active"}', StructuredOutput("Hello.", "active")),
        (' {"status": "closed", "response": "Bye."}\n', StructuredOutput("Bye.", "closed")),
        ('```json\n{"response": "Hello."}\n```', StructuredOutput("Hello.")),
        ("{'response': 'Hello.', 'status': 'idle',}", StructuredOutput("Hello.", "idle")),
        ('{"response": "Hello."} As you wish.', StructuredOutput("Hello.")),
        ('{"response": "Hello, how a', StructuredOutput("Hello, how a")),
        ('{"response": "Hello.", "status": "glad"}', StructuredOutput("Hello.")),
        ('{"response": "Hello.", "status": ["active"]}', StructuredOutput("Hello.")),
        ('{"response": "", "status": "idle"}', StructuredOutput("", "idle", silent=True)),
        ('{"status": "idle"}', StructuredOutput("", "idle", silent=True)),
        ('{"resp', StructuredOutput("")),
        ('{"response": {"a": 1}}', StructuredOutput('{"response": {"a": 1}}')),
        ('{"response" is the key', StructuredOutput('{"response" is the key')),
        ('{"a": 1}', StructuredOutput('{"a": 1}')),
        ("{}", StructuredOutput("{}")),
        ("```", StructuredOutput("```")),
        ("", StructuredOutput("")),
    ],
)
def test_an_answer_is_read(text: str, output: StructuredOutput) -> None:
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
