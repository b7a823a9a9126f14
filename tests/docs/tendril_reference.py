"""Generator of the lists in docs/tendrils-reference.md from the public names and their docstrings.

`python -m tests.docs.tendril_reference` writes them; a test fails if they are out of date.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

import terrarium
from harnesses.core.attention import AttentionMixin
from harnesses.core.chat import ChatTendril
from harnesses.core.commands.request import CommandRequest
from harnesses.core.services.peers import Origin, PeerService, TendrilOutbox
from harnesses.core.services.privacy import PrivacyService
from harnesses.core.services.reminders import ReminderService, Requester
from harnesses.core.services.shared_log import LoggedLine, TendrilLog
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.configuration import Configuration
from harnesses.core.tendril.resources import Resources
from harnesses.core.tendril.services import MediumServices, TendrilMetrics
from harnesses.core.tendril.status import StatusFile
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.core.tendril.turns import Turns
from storage.chat_log.event import Event, Identity, Place
from storage.queues.jobs import Jobs
from terrarium import testing
from tests.docs.reference import ROOT, replaced

PAGE = ROOT / "docs" / "tendrils-reference.md"

SERVICES: Mapping[str, type[Any]] = {
    "self.log": TendrilLog,
    "self.outbox": TendrilOutbox,
    "self.peers": PeerService,
    "self.remind": ReminderService,
    "self.privacy": PrivacyService,
    "self.jobs": Jobs,
    "self.metrics": TendrilMetrics,
    "self.status": StatusFile,
    "self.turns": Turns,
}

_RECORDS: tuple[type[Any], ...] = (
    *(CommandRequest, Event, Identity, LoggedLine, Origin),
    *(Place, Requester, TurnRequest, TurnResult),
)
_TESTING = ("ManualClock", "ScriptedModel", "running")

_PARTS = (Resources, MediumServices, Configuration)


def lists() -> str:
    """Return the lists as Markdown."""
    imports = [
        f"- `{name}`: {_first_sentence(getattr(terrarium, name))}" for name in terrarium.__all__
    ]
    parts = ["### `from terrarium import ...`", "\n".join(imports)]
    parts += ["### Fields", "\n".join(map(_fields, _RECORDS))]
    tests = [f"- `{name}`: {_first_sentence(getattr(testing, name))}" for name in _TESTING]
    parts += ["### `from terrarium.testing import ...`", "\n".join(tests)]
    for part in (testing.ScriptedModel, testing.ManualClock):
        parts += [f"### `{part.__name__}`", "\n".join(_methods(part))]
    parts += ["### `Tendril`: methods", "\n".join(_methods(Tendril))]
    parts += ["### `Tendril`: attributes", "\n".join(_attributes(Tendril, *_PARTS))]
    known = public_names(Tendril)
    for kind in (ChatTendril, AttentionMixin):
        of_its_own = [
            line
            for line in (*_methods(kind), *_attributes(kind))
            if re.split(r"\W", line.removeprefix("- `"))[0] not in known
        ]
        parts += [f"### `{kind.__name__}`", "\n".join(of_its_own)]
    for name, kind in SERVICES.items():
        parts += [f"### `{name}`: {kind.__name__}", "\n".join(_methods(kind))]
    return "\n\n".join(parts)


def documented(text: str) -> str:
    """Return the text of the page with its lists replaced."""
    return replaced(text, "tendrils", lists())


def public_names(kind: type[Any]) -> list[str]:
    """Return the public names of a class, including inherited ones, sorted."""
    ours = [each for each in kind.__mro__ if each.__module__.partition(".")[0] != "builtins"]
    names = {name for each in ours for name in (*vars(each), *inspect.get_annotations(each))}
    return sorted(name for name in names if not name.startswith("_"))


def _methods(kind: type[Any]) -> Iterator[str]:
    for name in public_names(kind):
        member = inspect.getattr_static(kind, name, None)
        function = getattr(member, "__func__", member)
        if isinstance(function, property):
            yield f"- `{name}`: {_first_sentence(function.fget)}"
        elif callable(function):
            signature = inspect.signature(function)
            parameters = signature.parameters.values()  # `writes` gives the connection `db`
            given = [each for each in parameters if each.name not in ("self", "db")]
            shown = _plain(signature.replace(parameters=given))
            kind_of = ", async" if inspect.iscoroutinefunction(function) else ""
            yield f"- `{name}{shown}`{kind_of}: {_first_sentence(function)}{_raises(function)}"


def _attributes(kind: type[Any], *parts: type[Any]) -> Iterator[str]:
    """Yield the attributes of a class; those whose types it does not say are named in `parts`."""
    hints = {name: each for part in (*parts, kind) for name, each in get_type_hints(part).items()}
    for name in public_names(kind):
        if name in hints and not callable(getattr(kind, name, None)):
            shown = getattr(hints[name], "__name__", str(hints[name]))
            is_ours = getattr(hints[name], "__module__", "builtins") != "builtins"
            about = _first_sentence(hints[name]) if inspect.isclass(hints[name]) and is_ours else ""
            yield f"- `{name}`, {shown}{': ' if about else ''}{about}".rstrip()


def _fields(kind: type[Any]) -> str:
    """Return the fields of a dataclass with their types and defaults."""
    return f"- `{kind.__name__}{_plain(inspect.signature(kind)).removesuffix(' -> None')}`"


def _plain(signature: inspect.Signature) -> str:
    """Return a signature as it is written."""
    shown = re.sub(r"<class '(\w+)'>", r"\1", str(signature)).replace("<factory>", "...")
    return shown.replace("''", '""').replace("'", "")


def _raises(function: Any) -> str:
    """Return what a docstring says about exceptions, with a space before it; "" for nothing."""
    found = re.search(r"Raises [^.]*\.", " ".join((inspect.getdoc(function) or "").split()))
    return f" {found[0]}" if found and found[0] not in _first_sentence(function) else ""


def _first_sentence(thing: Any) -> str:
    """Return the first sentence of a docstring, on one line."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    head, stop, _ = text.partition(". ")
    return f"{head}." if stop else text


def main() -> None:
    """Write the lists into the page."""
    PAGE.write_text(documented(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
