"""Capacity check: whether the nodes of a cluster have room for the configured engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_server.settings.models import settings_of_models
from agent_server.settings.ray import RaySettings
from terrarium.config import Config

Resources = Mapping[str, float]
"""Amounts by Ray's resource names."""

CPU, GPU = "CPU", "GPU"


@dataclass(frozen=True, slots=True)
class EngineDemand:
    """The minimum number of replicas of one embedded engine, and what each of them reserves.

    `table` is the table of the settings that it comes from.
    """

    table: str
    count: int
    each: Resources


def demands(config: Config) -> Sequence[EngineDemand]:
    """Return the demand of every embedded engine. Raises ConfigError."""
    ray = config.section(RaySettings)
    default, models = settings_of_models(config)
    return [
        EngineDemand(
            "[model]" if model is default else f"[model.models.{name}]",
            ray.min_engines,
            {CPU: model.threads, GPU: ray.engine_gpus},
        )
        for name, model in models.items()
        if not model.urls
    ]


def shortage(config: Config, nodes: Sequence[Resources], where: str) -> str | None:
    """Return a sentence that says what does not fit on the nodes and what to do, None if all fits.

    A replica needs a node that has all of its resources. `where` names the nodes in the sentence.
    Raises ConfigError.
    """
    wanted = demands(config)
    free = [dict(node) for node in nodes]
    # First-fit decreasing: placed first, small replicas could fragment the nodes for large ones.
    for demand in sorted(wanted, key=lambda demand: demand.each[CPU], reverse=True):
        for placed in range(demand.count):
            if not _place(demand.each, free):
                return _sentence(demand, placed, wanted, nodes, where)
    return None


def _place(each: Resources, free: Sequence[dict[str, float]]) -> bool:
    """Reserve the resources of one replica on the first node that has them; False if none has."""
    for node in free:
        if all(node.get(name, 0) >= amount for name, amount in each.items()):
            for name, amount in each.items():
                node[name] = node.get(name, 0) - amount
            return True
    return False


def _sentence(
    demand: EngineDemand,
    placed: int,
    wanted: Sequence[EngineDemand],
    nodes: Sequence[Resources],
    where: str,
) -> str:
    """Return the sentence about the scarce resource: GPUs only if all CPUs together suffice."""
    is_gpu = _sum_of_demands(wanted, CPU) <= _sum_of_nodes(nodes, CPU) and _sum_of_demands(
        wanted, GPU
    ) > _sum_of_nodes(nodes, GPU)
    name = GPU if is_gpu else CPU
    engines = " and ".join(
        f"{_count(each.count, 'engine')} of {_count(each.each[name], name)}" for each in wanted
    )
    need = "each need" if sum(each.count for each in wanted) > 1 else "needs"
    has = f"{_sum_of_nodes(nodes, name):g}"
    if len(nodes) > 1:
        most = max(node.get(name, 0) for node in nodes)
        has += f", on {len(nodes)} nodes of at most {most:g}"
    return f"{engines} {need} {_sum_of_demands(wanted, name):g}; {where} has {has}: " + (
        "lower [ray] engine_gpus" if is_gpu else _advice(demand, placed, wanted, nodes)
    )


def _advice(
    demand: EngineDemand, placed: int, wanted: Sequence[EngineDemand], nodes: Sequence[Resources]
) -> str:
    """Return which settings to change, with fitting numbers if there is one engine and one node."""
    if len(wanted) > 1 or len(nodes) > 1:
        return f"set fewer {demand.table} threads or [ray] min_engines"
    settings = []
    if threads := int(_sum_of_nodes(nodes, CPU)) // demand.count:
        settings.append(f"{demand.table} threads = {threads}")
    if placed:
        settings.append(f"[ray] min_engines = {placed}")
    if not settings:
        return f"set {demand.table} threads = 1 and [ray] min_engines = 1"
    return f"set {' or '.join(settings)}"


def _sum_of_demands(wanted: Sequence[EngineDemand], name: str) -> float:
    return sum(demand.count * demand.each[name] for demand in wanted)


def _sum_of_nodes(nodes: Sequence[Resources], name: str) -> float:
    return sum(node.get(name, 0) for node in nodes)


def _count(amount: float, name: str) -> str:
    return f"{amount:g} {name}{'' if amount == 1 else 's'}"
