"""The factory of engines, by the settings of a model."""

from __future__ import annotations

from agent_server.engine_protocol import Engine
from agent_server.engines.anthropic import AnthropicEngine
from agent_server.engines.embedded import EmbeddedEngine
from agent_server.engines.llama_child import EngineSpec
from agent_server.engines.openai import OpenAIEngine
from agent_server.engines.upstream_pool import UpstreamConfig
from agent_server.model_catalogue.machine import Machine
from agent_server.model_files.gguf import fitting_context
from agent_server.model_files.store import gguf, model_file
from agent_server.settings.models import ModelConfig, ModelSettings


def create_engine(name: str, settings: ModelConfig) -> Engine:
    """Create the engine of the model `name`, not yet started. Raises ConfigError."""
    if settings.urls:
        key = settings.upstream_key
        config = UpstreamConfig(
            settings.urls,
            key.get_secret_value() if key else None,
            settings.upstream_model,
            settings.timeout,
            slots=settings.slot_count,
        )
        return (AnthropicEngine if settings.api == "anthropic" else OpenAIEngine)(config)
    if isinstance(settings, ModelSettings):
        path = model_file(settings)
    else:
        assert settings.path is not None  # settings_of_models requires one
        path = gguf(settings.path)
    spec = EngineSpec(
        path=str(path),
        name=name,
        context=settings.context
        or fitting_context(path, settings.slot_count, Machine.here().memory),
        slots=settings.slot_count,
        threads=settings.threads,
        thinks=settings.reasoning is True,
    )
    return EmbeddedEngine(spec, timeout=settings.timeout)
