"""Count which lines reply to a question, for the chances in `storage/passages/replies.py`.

    python -m benchmarks.reply_counts ../shared/data/ubuntu-irc/train

Of the lines of others just after a question in logs with hand-made reply links: the share that
replies to it, by whom they address and how many lines later they come.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import islice
from pathlib import Path

from benchmarks.context_data import Annotated, Said, annotated
from storage.passages.replies import NEXT, addressee, distance_bin
from storage.passages.words import asks

_BINS = range(5)
_FAR = 40  # lines of the file, with those that nobody said


def count(file: Annotated, lines: Counter[tuple[str, int]], hits: Counter[tuple[str, int]]) -> int:
    """Count the candidates of a file and those that reply, by addressee and distance; how many
    questions there are."""
    links = set(file.links)
    first, last = min(b for _, b in links), max(b for _, b in links)
    questions = 0
    for number in range(first, last - _FAR // 2):
        question = file.lines[number]
        if not isinstance(question, Said) or not asks(question.text):
            continue
        questions += 1
        after = range(number + 1, min(len(file.lines), number + _FAR))
        said = ((index, each) for index in after if isinstance(each := file.lines[index], Said))
        for distance, (index, each) in enumerate(islice(said, NEXT), 1):
            if each.nick != question.nick and not asks(each.text):
                to = addressee(each.text)
                whom = "asker" if to == question.nick.lower() else "another" if to else "nobody"
                key = whom, distance_bin(distance)
                lines[key] += 1
                hits[key] += (number, index) in links
    return questions


def main() -> None:
    """Print the shares for the folder that the command line names."""
    lines: Counter[tuple[str, int]] = Counter()
    hits: Counter[tuple[str, int]] = Counter()
    questions = sum(count(file, lines, hits) for file in annotated(Path(sys.argv[1])))
    print(f"{questions} questions; by distance:")
    for whom in ("asker", "nobody", "another"):
        shares = [hits[whom, each] / max(1, lines[whom, each]) for each in _BINS]
        print(f"  to {whom:8}", " ".join(f"{share:.2f}" for share in shares))


if __name__ == "__main__":
    main()
