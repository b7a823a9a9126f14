"""Keeps what belongs to prompts alone out of answers: our tags, and forged lines of the log.

Small models go on writing the prompt instead of answering it: `</irc_logs>`, or a line like
`[2019-07-31 14:56:18] <tom> hi` that nobody said, which the log would then keep as evidence. This
serves as stop sequences do, for every engine alike: hosted ones allow few of them, or none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from llm.messages.message import Message

_NAMES = (
    "(?:earlier_|found_)?irc_logs|tool_results?|worked_out|guidance|lessons|episodes|own_facts|facts"
    "|notes|memory|topic"
)
_TAG = re.compile(
    rf"(?:<|&lt;)(?P<closing>\s*/)?\s*(?:{_NAMES})\b[^<>\n]{{0,60}}(?:>|&gt;|(?=\n))", re.I
)
_TAG_BEGUN = re.compile(r"(?:<|&(?:l(?:t;?)?)?)[\s/a-z_=\"']{0,60}\Z", re.IGNORECASE)
_LINE = re.compile(
    r"[ \t>]*\[(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d)?(?: UTC)?\][ \t]*"
    r"(?:<[^<>\s]{1,40}>|\* \S{1,40}|-[^\s-]\S{0,40}-|\*\*\*)[ \t]*"
)
_LINE_BEGUN = re.compile(r"[ \t>]*(?:\[[^\n]{0,80})?\Z")


class PromptEchoFilter:
    """Filters one answer as it streams; `prompt` is what the model was given.

    The first tag or forged line ends the answer (`has_ended`), as what follows is prompt as well.
    While nothing has been shown only the mark itself is dropped: the answer may still come. A line
    that stands in the prompt may be quoted.
    """

    def __init__(self, prompt: Sequence[Message] = ()) -> None:
        self._prompt = prompt
        self._held = ""
        self._line_begins = True
        self._shown = False
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part of the stream that may certainly be shown now."""
        return self._advance(text, final=False)

    def finish(self) -> str:
        """Return what was held back and may be shown."""
        return self._advance("", final=True)

    def _advance(self, text: str, *, final: bool) -> str:
        self._held += text
        out = ""
        while self._held and not self.has_ended:
            line, newline, rest = self._held.partition("\n")
            if self._line_begins and (head := _LINE.match(line)):
                if not newline and not final:
                    break
                if not self._is_quoted(line):
                    self._held = self._held[head.end() :]
                    self.has_ended = self._shown
                    continue
            elif self._line_begins and not newline and not final and _LINE_BEGUN.match(line):
                break
            piece, complete = self._strip_tags(line, whole=bool(newline) or final)
            out += piece
            self._shown = self._shown or bool(piece.strip())
            if not complete:
                self._line_begins = self._line_begins and not piece
                break
            if not self.has_ended:
                out += newline
            self._held, self._line_begins = rest, bool(newline)
        return out

    def _strip_tags(self, line: str, *, whole: bool) -> tuple[str, bool]:
        """A line without our tags, and whether all of it could be judged; what could not is held
        back."""
        out = ""
        while tag := _TAG.search(line):
            before = line[: tag.start()]
            out += before
            if (self._shown or out.strip()) and not tag["closing"]:
                self.has_ended = True
                return out.rstrip(), True
            line = line[tag.end() :]
        begun = None if whole else _TAG_BEGUN.search(line)
        if begun:
            self._held = line[begun.start() :]
            return out + line[: begun.start()], False
        if not whole:
            self._held = ""
        return out + line, whole

    def _is_quoted(self, line: str) -> bool:
        """Whether the model was shown this line."""
        squashed = " ".join(line.strip(" \t>").split())
        return any(
            squashed in " ".join(message["content"].split())
            for message in self._prompt
            if isinstance(message.get("content"), str)
        )
