"""The keys with which the processes of one `terrarium up` come to its agent server.

Each tendril has a key of its own in its environment, and commands of the same machine share one, so
that the usage is known by name, and a key that somebody issues locks none of them out.
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
"""The name of the key of commands such as `terrarium chat`."""

_BACKGROUND = ("cron",)
"""Tendrils for which nobody waits."""


async def make_launch_keys(config: Config, plan: LaunchPlan) -> Mapping[str, str]:
    """Make a key for each tendril of the plan and one for local commands; return the secrets.

    The keys of the last start end. Raises StorageError.
    """
    names = dict.fromkeys((*plan.tendrils, LOCAL))
    keys = [
        Key(name, priority="background" if name in _BACKGROUND else "interactive") for name in names
    ]
    async with Database.open(store_address(config, "server")) as database:
        return await Keys(database).replace_launch_keys(keys)


async def end_launch_keys(config: Config) -> None:
    """End all of them. Raises StorageError."""
    async with Database.open(store_address(config, "server")) as database:
        await Keys(database).replace_launch_keys(())


def has_own_key(config: Config, plan: LaunchPlan) -> bool:
    """Return whether [agent] already has a key for its tendrils, or names another server.

    The admin's key is none: no process that reads what strangers write is to have it.
    """
    agent = config.section(AgentSettings)
    if agent.api_url.rstrip("/").removesuffix("/v1") != plan.server and (
        "api_url" in agent.model_fields_set
    ):
        return True
    admin: SecretStr | None = table_settings(config, "server")["admin_key"]
    return agent.api_key is not None and agent.api_key != admin
