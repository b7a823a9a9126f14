"""The configuration that a tendril uses, with the personas, skills and MCP servers it names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from harnesses.core.addresses import with_agent_address
from llm.client.settings import AgentSettings
from llm.prompt.builder import PromptBuilder
from terrarium.config import Config, load
from terrarium.file_watcher import changes


class Configuration:
    """The configuration of the tendril `name`, which can be replaced while it runs.

    `agent` is its table `[agent]`, `prompts` the personas, skills and MCP servers. `persona` is the
    file of the tendril's own persona. Raises ConfigError.
    """

    config: Config
    agent: AgentSettings
    prompts: PromptBuilder

    def __init__(self, name: str, persona: Path, config: Config) -> None:
        self.prompts = PromptBuilder()
        self._name, self._persona = name, persona
        self.use(config)

    def use(self, config: Config) -> None:
        """Use another configuration from now on. Raises ConfigError; the previous one then stays in
        use."""
        agent = config.section(AgentSettings)
        folders = (config.data / "personas", config.data / "skills")
        # Whatever can raise comes first; the attributes are assigned last.
        self.prompts.read(agent.personas.get(self._name, self._persona), *folders, config)
        self.prompts.mcp_servers.configure(self._name, config)
        self.config, self.agent = config, agent

    def read_file(self) -> Config:
        """Return the configuration as its file has it at the moment. Raises ConfigError."""
        if self.config.path is None:
            return self.config
        return with_agent_address(load(self.config.path, self.config.data), self._name)

    def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever a file has changed, and on SIGHUP; close the generator after use."""

        def files() -> Iterator[Path]:
            if self.config.path:
                yield self.config.path
            yield from self.prompts.files()

        return changes(files)
