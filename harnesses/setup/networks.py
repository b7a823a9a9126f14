"""Public IRC networks that `terrarium init` knows."""

from __future__ import annotations

from dataclasses import dataclass

MARK = "🤖 "
"""The default mark of answers that a model has written, on public networks."""


@dataclass(frozen=True, slots=True)
class PublicNetwork:
    """A network with its rules for bots, as lines for their owners.

    `login` is the setting for the password of the bot's account. TLS is on port 6697.
    """

    title: str
    server: str
    login: str
    register: str
    rules: tuple[str, ...]

    @property
    def advice(self) -> tuple[str, ...]:
        """The rules, and how to register the bot."""
        return (*self.rules, f"Its own account, if it has none yet: {self.register}")


_OPERATORS = "Ask the operators of each channel before the bot joins it."

PUBLIC_NETWORKS = {
    "libera": PublicNetwork(
        "Libera.Chat",
        "irc.libera.chat",
        "sasl_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (
            f"{_OPERATORS} Without their explicit permission it must not join.",
            "The bot must be recognisable as one, and say whose it is: keep `realname` and `mark`.",
            "What a model reads counts as publicly logged: the topic or the entry message must"
            " say so.",
            "Policy as of May 2026; the current one is at https://libera.chat/policies",
        ),
    ),
    "oftc": PublicNetwork(
        "OFTC",
        "irc.oftc.net",
        "nickserv_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (_OPERATORS, "The current rules are at https://www.oftc.net"),
    ),
    "hackint": PublicNetwork(
        "hackint",
        "irc.hackint.org",
        "sasl_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (
            f"{_OPERATORS} A public log needs the permission of the channel's owners.",
            "The current rules are at https://www.hackint.org",
        ),
    ),
}
