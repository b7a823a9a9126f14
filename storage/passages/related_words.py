"""Which words mean nearly the same or are spoken of together, and how frequent words are.

The table comes along; `benchmarks/related_words.py` makes it from word vectors (GloVe) and WordNet.
Words are stems of `storage.passages.word_forms`.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from storage.passages.word_forms import stem


@dataclass(frozen=True, slots=True)
class RelatedWords:
    """`ranks` has the place of each stem in the order of frequency, from 0; `lines` its relatives
    as the file has them."""

    ranks: Mapping[str, int]
    lines: list[str]

    def related_to(self, root: str) -> Mapping[str, float]:
        """Return the stems that are related to a stem, likeliest first, each with its weight: 0.1
        to 0.9."""
        rank = self.ranks.get(root)
        if rank is None:
            return _ADDED.get(root, {})
        listed = {each[1:]: int(each[0]) / 10 for each in self.lines[rank].split()[1:]}
        return listed | _ADDED.get(root, {})

    def rank(self, root: str) -> int:
        """Return how many stems are more frequent in English."""
        return self.ranks.get(root, len(self.lines))


# What people on a channel use for one another and no general source has.
_GROUPS = """
pc computer machine box server host workstation|wifi wlan wireless internet network
password passphrase pin code credential login|deploy release rollout ship launch
down offline broken dead unreachable outage|bug error fault issue defect
boss manager lead chief head|repo repository|docs documentation manual
config configuration setting|fix repair mend patch|picture photo image|film movie|flat apartment
lift elevator|fridge refrigerator|garbage trash rubbish recycling|vacation holiday leave
beamer projector|bike bicycle|car auto vehicle|plane flight aircraft|bus coach
phone telephone mobile cell|mail email e-mail|call phone ring
start begin commence kick kickoff open|end finish close stop|meet gather assemble|buy purchase get
cost price charge fee pay expensive|deadline due|move relocate shift|kid child baby|sick ill
invoice bill|money treasurer budget cash|address located location|name called|guest visitor
write author|doctor physician|fair festival fete market|training practise practice rehearsal
cancel call scrap drop|canteen cafeteria lunch|bakery bread|key unlock|boat ship ferry kayak
warm temperature hot degree|cold temperature degree|bright lumen|fast speed|old age year
tall height|cat dog pet hamster rabbit parrot|allergic allergy|pub bar|dinner supper meal
food meal|borrow lend loan|reserve book|birthday born|wedding marry|job work employ
live home reside dwell|win champion winner victory|arrive land come arrival
leave depart departure go|test staging trial|backup save copy|sign signature|sell sold
responsible charge maintain owner own
"""
_ADDED: dict[str, dict[str, float]] = {}
for _group in _GROUPS.strip().replace("\n", "|").split("|"):
    _stems = [stem(word) for word in _group.split()]
    for _each in _stems:
        for _other in _stems:
            if _other != _each:
                _ADDED.setdefault(_each, {})[_other] = 0.6


@cache
def related_words() -> RelatedWords:
    """The table that comes along."""
    packed = (files("storage.passages") / "related_words.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode().split("\n")
    return RelatedWords({line.split(" ", 1)[0]: place for place, line in enumerate(lines)}, lines)
