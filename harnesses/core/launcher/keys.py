"""Launch keys: the API keys that `terrarium up` creates for its own processes.

Each tendril receives its key in its environment; commands on the same machine share one. Usage is
thus accounted by name, and the processes still have access once the owner issues a first key,
after which the agent server requires one.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import SecretStr

from harnesses.core.addresses import table_settings
from harnesses.core.launcher.plan import LaunchPlan
from llm.client.settings import AgentSettings
from storage.db.database import Database
from storage.settings import store_address
from storage.usage.api_keys import Key, Keys
from terrarium.config import Config

LOCAL = "local"
"""The name of the launch key for commands such as `terrarium chat`."""

_BACKGROUND = ("cron",)
"""Tendrils whose answers nobody waits for, so that their keys have background priority."""


async def make_launch_keys(config: Config, plan: LaunchPlan) -> Mapping[str, str]:
    """Create a key for each tendril of the plan and one for local commands; return the secrets by
    name.

    Launch keys of earlier starts are revoked. Raises StorageError.
    """
    names = dict.fromkeys((*plan.tendrils, LOCAL))
    keys = [
        Key(name, priority="background" if name in _BACKGROUND else "interactive") for name in names
    ]
    async with Database.open(store_address(config, "server")) as database:
        return await Keys(database).replace_launch_keys(keys)


async def end_launch_keys(config: Config) -> None:
    """Revoke all launch keys. Raises StorageError."""
    async with Database.open(store_address(config, "server")) as database:
        await Keys(database).replace_launch_keys(())


def has_own_key(config: Config, plan: LaunchPlan) -> bool:
    """Return True if `[agent]` already has a key for the tendrils, or names another server.

    The admin key does not count: a process that reads messages from strangers must not have it.
    """
    agent = config.section(AgentSettings)
    # The default `api_url` names no server: with a free port, ours is at another address.
    if agent.server_url != plan.server and "api_url" in agent.model_fields_set:
        return True
    admin: SecretStr | None = table_settings(config, "server")["admin_key"]
    return agent.api_key is not None and agent.api_key != admin
