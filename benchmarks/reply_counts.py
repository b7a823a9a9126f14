"""Estimate the reply probabilities of `storage/passages/replies.py`.

    python -m benchmarks.reply_counts ../shared/data/ubuntu-irc/train

Prints, for logs with hand-annotated reply links, the share of other people's lines after a question
that reply to it, by addressee and distance in lines.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import islice
from pathlib import Path

from benchmarks.reply_links import Annotated, Said, annotated
from storage.passages.replies import FOLLOWING_LINES, addressee, distance_bin
from storage.passages.words import asks

_BINS = range(5)
_FAR = 40  # lines of the file, including joins and the like


def count(file: Annotated, lines: Counter[tuple[str, int]], hits: Counter[tuple[str, int]]) -> int:
    """Count the candidate replies of a file (`lines`) and the actual ones (`hits`).

    Both are by addressee and distance. Returns the number of questions.
    """
    links = set(file.links)
    # Only the annotated range, without its end, whose replies may lie outside.
    first, last = min(b for _, b in links), max(b for _, b in links)
    questions = 0
    for number in range(first, last - _FAR // 2):
        question = file.lines[number]
        if not isinstance(question, Said) or not asks(question.text):
            continue
        questions += 1
        after = range(number + 1, min(len(file.lines), number + _FAR))
        said = ((index, each) for index in after if isinstance(each := file.lines[index], Said))
        for distance, (index, each) in enumerate(islice(said, FOLLOWING_LINES), 1):
            if each.nick != question.nick and not asks(each.text):
                to = addressee(each.text)
                whom = "asker" if to == question.nick.lower() else "another" if to else "nobody"
                key = whom, distance_bin(distance)
                lines[key] += 1
                hits[key] += (number, index) in links
    return questions


def main() -> None:
    """Print the shares for the folder given on the command line."""
    lines: Counter[tuple[str, int]] = Counter()
    hits: Counter[tuple[str, int]] = Counter()
    questions = sum(count(file, lines, hits) for file in annotated(Path(sys.argv[1])))
    print(f"{questions} questions; by distance:")
    for whom in ("asker", "nobody", "another"):
        shares = [hits[whom, each] / max(1, lines[whom, each]) for each in _BINS]
        print(f"  to {whom:8}", " ".join(f"{share:.2f}" for share in shares))


if __name__ == "__main__":
    main()
