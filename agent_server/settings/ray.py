"""The table `[ray]`."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from terrarium.config import Settings


class RaySettings(Settings):
    """The engines of `terrarium server --ray`, which needs `pip install 'terrarium-irc[ray]'`."""

    table: ClassVar[str] = "ray"

    min_engines: int = Field(
        1, ge=1, description="fewest replicas of each embedded engine, of `[model] threads` CPUs"
    )
    max_engines: int = Field(
        1, ge=1, description="most replicas of each; more are started while requests wait"
    )
    upscale_delay: float = Field(
        30, ge=0, description="seconds that requests wait before one more engine is started"
    )
    downscale_delay: float = Field(
        600, ge=0, description="seconds that an engine has nothing to do before it is stopped"
    )
    engine_gpus: float = Field(0, ge=0, description="GPUs that each replica of an engine takes")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max_engines < self.min_engines:
            raise ValueError("max_engines is less than min_engines; raise it")
        return self
