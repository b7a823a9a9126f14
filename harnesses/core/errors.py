"""The exceptions of tendrils and of the launcher.

TendrilError
├── PortTaken         another program listens on one of our ports
├── UnknownTendril    no installed package provides a tendril of that name
├── PeerRefused       another tendril must not be asked, or does not answer
├── ChildConfigError  (supervisor.py) a child process cannot use its configuration
└── TendrilCrashed    (tendrils.py) a tendril ended with an unexpected error
"""

from __future__ import annotations


class TendrilError(Exception):
    """A process or command cannot do its work; the message says why and what to do."""


class PortTaken(TendrilError):
    """Another program listens on one of our ports."""

    def __init__(self, host: str, port: int, variable: str, key: str) -> None:
        super().__init__(
            f"port {port} on {host} is taken by another program; "
            f"choose another with {variable}=PORT or `{key}` in terrarium.toml"
        )


class UnknownTendril(TendrilError):
    """No installed package provides a tendril of that name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f'no tendril is called "{name}"; there are: {", ".join(known)}')


class PeerRefused(TendrilError):
    """Another tendril must not be asked, or does not answer; the message is for the model."""
