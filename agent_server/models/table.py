"""The table of names: which models answer a request for which name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent_server.admission.admitted_engine import AdmittedEngine
from agent_server.errors import NotFound
from agent_server.models.card_store import CardStore
from agent_server.models.served_model import ServedModel
from agent_server.settings.models import ModelConfig, settings_of_models
from terrarium.config import Config

EngineFactory = Callable[[str, ModelConfig], AdmittedEngine]
"""Makes the engine of a model, by its name and settings. Raises ConfigError."""

LOCAL = "local"
"""The prefix that means a model of the table and no alias."""


class ModelTable:
    """Models by name, and aliases. A name can also be a model's and, behind a colon, that of one
    more model at the same upstream."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        aliases: Mapping[str, tuple[str, ...]],
        default: str,
    ) -> None:
        self.models = models
        self.aliases = aliases
        self.default = models[default]

    @classmethod
    def from_config(
        cls, config: Config, make: EngineFactory, before: ModelTable | None = None
    ) -> ModelTable:
        """The table of `[model]`; a model whose settings are as `before` is kept as it runs.

        Raises ConfigError.
        """
        default, settings = settings_of_models(config)
        kept, store = before.models if before else {}, CardStore(config.data)
        models = {
            name: kept[name]
            if name in kept and kept[name].settings == wanted
            else ServedModel(name, make(name, wanted), wanted, store=store)
            for name, wanted in settings.items()
        }
        aliases = {
            name: (targets,) if isinstance(targets, str) else tuple(targets)
            for name, targets in default.aliases.items()
        }
        return cls(models, aliases, default.name)

    def resolve(self, name: str | None) -> tuple[ServedModel, ...]:
        """The models to ask, one after another until one answers. Raises NotFound."""
        if name is None:
            name = self.default.name
        targets = self.aliases.get(name, (name,))
        found = [self._model(target) for target in targets]
        models = tuple(model for model in found if model is not None)
        if len(models) < len(targets):
            raise NotFound(
                f"no model is called {name!r}; this server has {', '.join(self.names())}",
                param="model",
                code="model_not_found",
            )
        return models

    def names(self) -> list[str]:
        """All names of the table, models first."""
        return [*self.models, *(alias for alias in self.aliases if alias not in self.models)]

    def _model(self, name: str) -> ServedModel | None:
        if name in self.models:
            return self.models[name]
        prefix, colon, rest = name.partition(":")
        if not colon:
            return None
        if prefix == LOCAL:
            return self.models.get(rest)
        model = self.models.get(prefix)
        # An upstream whose model is named is there for that one only.
        if model is None or not rest or not model.settings.urls or model.settings.upstream_model:
            return None
        return model.for_upstream_model(rest)
