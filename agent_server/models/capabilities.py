"""Capabilities of a model: those that are configured, else those that its engine reports.

How well a model chooses tools is tested (measurements.py) for GGUF files, and for small upstreams
on this machine or in a private network. A large upstream, or one of unknown size, is assumed to
choose well; a small one hosted elsewhere, where each request may cost money, is assumed not to.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from agent_server.engine_protocol import ModelInfo
from agent_server.settings.models import ModelConfig, Tools
from terrarium.loopback import is_loopback

LARGE_MODEL_PARAMETERS = 7_000_000_000
"""Number of parameters from which a model with tools is assumed to choose them well."""

ASSUMED_CONTEXT, ASSUMED_EMBEDDED_CONTEXT = 32_768, 8_192
"""Windows in tokens: of an upstream that does not name its own, and of the embedded engine before
it has loaded the model."""


@dataclass(frozen=True, slots=True)
class ModelCapabilities:
    """Capabilities of a model; None is unknown. `context` is in tokens, of prompt and answer of one
    request together."""

    tools: Tools
    context: int
    vision: bool
    reasoning: bool | None
    embeddings: bool | None
    counts_tokens: bool | None
    chooses_tools: bool | None

    @classmethod
    def from_settings(
        cls, settings: ModelConfig, info: ModelInfo, passed_test: bool | None = None
    ) -> ModelCapabilities:
        """Merge the settings with the engine's `info`; the settings take precedence.

        An upstream is assumed to have vision unless one of them denies it. `passed_test` is the
        result of the tool-choice test, None without one.
        """
        mode = settings.tool_mode
        if settings.tools is None and mode == "native" and info.tools is False:
            mode = "constrained"
        assumed = ASSUMED_CONTEXT if settings.urls else ASSUMED_EMBEDDED_CONTEXT
        vision = (settings.vision, info.vision, bool(settings.urls))
        chooses = settings.chooses_tools
        if chooses is None and mode != "forced":
            chooses = passed_test if is_tested(settings, info) else not _is_small(info)
        return cls(
            tools=mode,
            context=settings.context or info.context or assumed,
            vision=next(each for each in vision if each is not None),
            reasoning=info.reasoning if settings.reasoning is None else settings.reasoning,
            embeddings=info.embeddings if settings.embeddings is None else settings.embeddings,
            counts_tokens=info.counts_tokens,
            chooses_tools=bool(chooses) if mode == "forced" else chooses,
        )

    def as_wire(self) -> dict[str, bool | int | str | None]:
        """Return the `capabilities` object of a model card."""
        return {key: value for key, value in asdict(self).items() if key != "context"}


def is_tested(settings: ModelConfig, info: ModelInfo) -> bool:
    """Return whether only a test can tell if a model chooses tools well."""
    if settings.chooses_tools is not None or settings.tool_mode == "forced":
        return False
    return not settings.urls or (_is_small(info) and all(map(is_near, settings.urls)))


def _is_small(info: ModelInfo) -> bool:
    return info.parameters is not None and info.parameters < LARGE_MODEL_PARAMETERS


def is_near(url: str) -> bool:
    """Return whether a server is on this machine or in a private network, so that it is free."""
    host = urlsplit(url).hostname or ""
    # A name without a dot, such as that of a container, is one of the local network.
    if is_loopback(host) or not {".", ":"}.intersection(host.strip(".")):
        return True
    try:
        return ip_address(host).is_private
    except ValueError:
        return False
