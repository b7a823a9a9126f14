"""Results of the questions: figures, and Markdown tables with all answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.answers.bare import LAYOUTS, BareAnswer
from benchmarks.answers.questions import SETS, Half, ScheduledQuestion
from benchmarks.answers.room import IrcAnswer
from benchmarks.answers.scoring import EXCUSE, is_line
from benchmarks.figure import Figure, percentile

RESULTS = Path(__file__).parents[1] / "results"
_LEAST: Mapping[str, float] = {
    "channel": 0.95,
    "paraphrase": 0.7,
    "skills": 1.0,
    "commands": 0.9,
    "who_said": 0.95,
}
"""The required share of right answers by set; general knowledge is compared with the bare
model."""


@dataclass
class AskedQuestion:
    """A question with its answer over IRC and the bare model's answers by layout.

    `text` is the answer, followed by a second question and its answer if there is one.
    """

    question: ScheduledQuestion
    answer: IrcAnswer
    text: str
    is_right: bool
    leaks: Sequence[str] = ()
    is_repeated: bool = False
    bare: Mapping[str, BareAnswer] = field(default_factory=dict)
    bare_right: Mapping[str, bool] = field(default_factory=dict)


def figures_of(
    asked: Sequence[AskedQuestion], at_once: Sequence[AskedQuestion]
) -> Iterator[Figure]:
    """Yield the figures of the whole run, then of its thirds, then of questions asked at once."""
    layout = better_layout(asked)
    print(f"  bare: the better layout is {layout!r}")
    for group in (*SETS, "paraphrase"):
        if of_group := [each for each in asked if each.question.group == group]:
            yield from _of_group(group, of_group, layout)
    yield from _costs("all", asked, layout)
    size = math.ceil(len(asked) / 3)
    for place, third in enumerate(("1st third", "2nd third", "3rd third")):
        if members := asked[place * size : (place + 1) * size]:
            share = 100 * sum(each.is_right for each in members) / len(members)
            yield Figure(f"{third}: right", share, "%")
            yield from _costs(third, members, layout)
    yield Figure("answers that quote the prompt", sum(bool(each.leaks) for each in asked), "", 0)
    for kind, count in Counter(kind for each in asked for kind in each.leaks).items():
        yield Figure(f"... of these: {kind}", count, "")
    repeated = sum(each.is_repeated for each in asked)
    yield Figure("answers that are an unrelated earlier one", repeated, "", 0)
    yield Figure("unanswered", _unanswered(asked), "", 0)
    yield Figure(f"{len(at_once)} at once: unanswered", _unanswered(at_once), "", 0)
    if first := _firsts(at_once):
        yield Figure(f"{len(at_once)} at once: first line, slowest", max(first), "s")


def better_layout(asked: Sequence[AskedQuestion]) -> str:
    """Return the layout in which the bare model answers most general questions right."""
    general = [each for each in asked if each.question.group == "general"] or asked
    right = Counter(name for each in general for name, ok in each.bare_right.items() if ok)
    return max(LAYOUTS, key=lambda name: right[name])


def _of_group(group: str, members: Sequence[AskedQuestion], layout: str) -> Iterator[Figure]:
    bare = {name: sum(each.bare_right[name] for each in members) for name in LAYOUTS}
    least = bare[layout] if group == "general" else math.ceil(_LEAST[group] * len(members))
    right = sum(each.is_right for each in members)
    yield Figure(f"{group}: right of {len(members)}", right, "", least=least)
    for half in ("seen", "unseen"):
        if part := [each for each in members if each.question.item.half == half]:
            right = sum(each.is_right for each in part)
            yield Figure(f"{group}: {half} half, right of {len(part)}", right, "")
    if group in ("channel", "paraphrase"):
        quoted = sum(is_line(each.text, each.question.item.text) for each in members)
        yield Figure(f"{group}: has the line itself", quoted, "")
    for name in LAYOUTS if group == "general" else (layout,):
        yield Figure(f"{group}: bare, {name}", bare[name], "")


def _costs(name: str, asked: Sequence[AskedQuestion], layout: str) -> Iterator[Figure]:
    """Yield prompt tokens and seconds; only those of the whole run ("all") have goals.

    Answers without a model call, or with an unfinished one, have no prompt.
    """
    is_all = name == "all"
    prompts = [each.answer.prompt for each in asked if each.answer.prompt] or [0]
    alone = sum(not each.answer.prompt for each in asked)
    yield Figure(f"{name}: no prompt known, of {len(asked)}", alone, "")
    yield Figure(
        f"{name}: prompt, median", percentile(prompts, 0.5), "tok", 700 if is_all else None
    )
    yield Figure(f"{name}: prompt, largest", max(prompts), "tok", 1200 if is_all else None)
    whole = [each.answer.whole for each in asked if each.answer.whole is not None]
    if not (first := _firsts(asked)):
        return
    yield Figure(f"{name}: first line, median", percentile(first, 0.5), "s")
    yield Figure(f"{name}: first line, p95", percentile(first, 0.95), "s", 4 if is_all else None)
    yield Figure(f"{name}: whole answer, median", percentile(whole, 0.5), "s")
    yield Figure(f"{name}: whole answer, p95", percentile(whole, 0.95), "s")
    ratios = [
        each.answer.first / each.bare[layout].seconds
        for each in asked
        if each.answer.first is not None and layout in each.bare
    ]
    if ratios:
        goal = 2 if is_all else None
        yield Figure(f"{name}: first line / bare, median", percentile(ratios, 0.5), "x", goal)


def _firsts(asked: Iterable[AskedQuestion]) -> list[float]:
    return [each.answer.first for each in asked if each.answer.first is not None]


def _unanswered(asked: Iterable[AskedQuestion]) -> int:
    return sum(not each.answer.text or bool(EXCUSE.search(each.answer.text)) for each in asked)


def written(asked: Sequence[AskedQuestion], folder: Path = RESULTS) -> list[Path]:
    """Write the answers to one file per half of the sets and return the paths.

    The halves are separate so that the unseen one need not be read when improving the program.
    """
    folder.mkdir(exist_ok=True)
    layout, time = better_layout(asked), f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    halves: Sequence[Half] = ("seen", "unseen")
    paths = []
    for half in halves:
        if members := [each for each in asked if each.question.item.half == half]:
            paths.append(folder / f"answers-{time}-{half}.md")
            paths[-1].write_text(_table(members, half, layout), encoding="utf-8")
    return paths


def _table(asked: Sequence[AskedQuestion], half: Half, layout: str) -> str:
    right = sum(each.is_right for each in asked)
    lines = [
        f"# Answers to the {half} half: {right} of {len(asked)} right",
        "",
        f"Bare is the same model, asked without Terrarium ({layout}).",
        "",
        "| # | set | question | expected | verdict | answer | first s | whole s | prompt"
        " | bare | bare s |",
        "|---:|---|---|---|---|---|---:|---:|---:|---|---:|",
    ]
    return "\n".join([*lines, *(_row(each, layout) for each in asked)]) + "\n"


def _row(asked: AskedQuestion, layout: str) -> str:
    item, answer = asked.question.item, asked.answer
    expected = item.then.expect if item.then else item.expect
    verdict = "right" if asked.is_right else "**wrong**"
    flags = [*asked.leaks, *(["repeated"] if asked.is_repeated else [])]
    bare = asked.bare.get(layout)
    cells = (
        f"{asked.question.number}",
        f"{asked.question.group} ({item.id})",
        f"{asked.question.asker}: {asked.question.text}",
        " / ".join(expected) or item.check,
        ", ".join([verdict, *flags]),
        asked.text or "(no answer)",
        _number(answer.first),
        _number(answer.whole),
        "" if answer.prompt is None else str(answer.prompt),
        f"{'' if asked.bare_right.get(layout) else '(wrong) '}{bare.text}" if bare else "",
        _number(bare.seconds) if bare else "",
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "\\<").split())


def _number(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"
