"""Splits `<think>...</think>` out of an answer while it streams.

Engines that know the model's format send `reasoning_content` themselves; the others leave the
tags in the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import aclosing

from agent_server.engine_protocol import Chunk, Chunks

OPEN, CLOSE = "<think>", "</think>"
BLANK = ("", " ", "\t", "\n")
_OPENING = re.compile(rf"(?:\A|(?<=\n))[ \t]*{OPEN}")


class ReasoningSplitter:
    """Takes the text of one choice piece by piece and says which part is which.

    A tag opens at the beginning of a line only, so that prose may speak of `<think>`. A block
    that is never closed hides the rest. Line breaks around a block belong to nobody.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._line_start = True
        self._trim = False

    def feed(self, text: str) -> tuple[str, str]:
        """Return (content, reasoning) that are certain now; the rest is held back."""
        if self._plain(text):
            self._line_start = False
            return text, ""
        self._held += text
        content, reasoning = "", ""
        while True:
            if self._thinking:
                part, switched = self._until_close()
                reasoning += part
            else:
                part, switched = self._until_open()
                content += part
            if not switched:
                return content, reasoning

    def end(self) -> tuple[str, str]:
        """Return what was held back when nothing more comes."""
        rest, self._held = self._held, ""
        return ("", rest) if self._thinking else (self._take_content(rest), "")

    def _plain(self, text: str) -> bool:
        """Whether `text` has nothing to do with tags, as nearly all that streams."""
        between = not (self._held or self._thinking or self._trim)
        return between and OPEN[0] not in text and text[-1:] not in BLANK

    def _until_close(self) -> tuple[str, bool]:
        before, tag, after = self._held.partition(CLOSE)
        if tag:
            self._held, self._thinking, self._trim = after, False, True
            return before, True
        safe = len(before) - _overlap(before, CLOSE)
        self._held = before[safe:]
        return before[:safe], False

    def _until_open(self) -> tuple[str, bool]:
        # A mark in front of the text stands for the line that earlier pieces began.
        mark = "" if self._line_start else "."
        text = mark + self._held
        match = _OPENING.search(text)
        if match:
            before, self._held = text[len(mark) : match.start()], text[match.end() :]
            self._thinking = True
            return self._take_content(before), True
        safe = len(text) - _opening_overlap(text)
        self._held = text[safe:]
        return self._take_content(text[len(mark) : safe]), False

    def _take_content(self, text: str) -> str:
        if self._trim:
            stripped = text.lstrip("\n")
            self._line_start = self._line_start or stripped != text
            text = stripped
        if text:
            self._trim = False
            self._line_start = text.endswith("\n")
        return text


async def split_reasoning(chunks: Chunks) -> Chunks:
    """Move think blocks of each choice from `content` to `reasoning_content`."""
    splitters: defaultdict[int, ReasoningSplitter] = defaultdict(ReasoningSplitter)
    async with aclosing(chunks):
        async for chunk in chunks:
            for choice in chunk.get("choices", ()):
                _split(choice, splitters[choice.get("index", 0)])
            yield chunk


def _split(choice: Chunk, splitter: ReasoningSplitter) -> None:
    delta = choice.setdefault("delta", {})
    text = delta.get("content")
    content, reasoning = splitter.feed(text) if text else ("", "")
    if choice.get("finish_reason") or delta.get("tool_calls"):
        last_content, last_reasoning = splitter.end()
        content, reasoning = content + last_content, reasoning + last_reasoning
    if text or content:
        delta["content"] = content
    if reasoning:
        delta["reasoning_content"] = delta.get("reasoning_content", "") + reasoning


def _overlap(text: str, tag: str) -> int:
    """How many last characters of `text` could be the beginning of `tag`."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0


def _opening_overlap(text: str) -> int:
    line = text.rpartition("\n")[2]
    blank = len(line) - len(line.lstrip(" \t"))
    return len(line) if OPEN.startswith(line[blank:]) else 0
