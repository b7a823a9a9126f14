"""Canned answers of the bot about itself, filled in for the current model and tendril.

The model is not asked, as it would make things up.
"""

from __future__ import annotations

from dataclasses import dataclass

ABILITIES, IDENTITY, MODEL = "abilities", "identity", "model"
TOPICS = (ABILITIES, IDENTITY, MODEL)
"""The topics that can be asked about."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The facts of an introduction: the bot's `name`, the name of its `model`, whether that chooses
    tools by itself, the `web_address` of the log ("" if people cannot open it), and the `prefix` of
    commands."""

    name: str
    model: str
    chooses_tools: bool
    web_address: str = ""
    prefix: str = "."

    def render(self, topic: str) -> str:
        """Return one to three lines about a topic; an unknown one is answered like `IDENTITY`."""
        web = f" The log to read and search is at {self.web_address}" if self.web_address else ""
        further = f"My commands: {self.prefix}help.{web}"
        match topic:
            case "abilities":
                tools = " and call tools for it" if self.chooses_tools else ""
                return (
                    f"I answer questions{tools}, and find what was said here: {self.prefix}search"
                    " pump.\nWithout my model I work out sums, units, dates and time zones, roll"
                    ' dice, remind you ("remind me in 20 minutes to check the oven") and remember'
                    f' things ("remember that my tea is oolong").\n{further}'
                )
            case "model":
                kind = (
                    "It chooses by itself when to use tools"
                    if self.chooses_tools
                    else "It is a small one that cannot use tools by itself"
                )
                return (
                    f"My model is {self.model or 'not reachable at the moment'}. {kind}, and what"
                    " it says may be wrong; sums, dates, reminders and searches do not pass through"
                    " it."
                )
            case _:
                model = f" ({self.model})" if self.model else ""
                return (
                    f"I am {self.name}, a bot: a program with a language model{model} that runs"
                    " where I am hosted. I keep the log of this place and answer questions about it"
                    f" and about anything else.\n{further}"
                )
