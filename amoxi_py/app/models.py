"""Which model answers for which agent: looked up once, when the process starts, and closed when it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from amoxi_py.config.settings import Settings
from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import AgentDefinition, Catalog
from amoxi_py.errors import ConfigError
from amoxi_py.models.lookup import resolve_model
from amoxi_py.ports.chat_model import ChatModel

log = logging.getLogger("amoxi_py.app")

_CLOSING_S = 2.0


class AgentModels:
    """The models of all agents, by the agent's name.

    `made` are those that were made here of a name. An object that an agent was given is its giver's to close.
    """

    def __init__(self, by_agent: Mapping[str, ChatModel], made: Iterable[ChatModel] = ()) -> None:
        self._by_agent = by_agent
        self._made = tuple(made)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models that are in use."""
        return tuple(sorted({model.name for model in self._by_agent.values()}))

    def model_for(self, agent: AgentDefinition, ctx: RunContext) -> ChatModel:
        """Return the agent's model."""
        return self._by_agent[agent.name]

    async def aclose(self) -> None:
        """Close the connections of the models that were made here, within two seconds; what fails is logged."""
        for model in self._made:
            close = getattr(model, "aclose", None)
            if close is None:
                continue
            try:
                async with asyncio.timeout(_CLOSING_S):
                    await close()
            except Exception as error:  # noqa: BLE001 - the process stops, and must do so in time
                log.warning("the connections of %s could not be closed: %s", model.name, type(error).__name__)


def find_models(catalog: Catalog, settings: Settings) -> AgentModels:
    """Return the model of each agent: its own, else `ai.model`, else by the provider's key that is there.

    Raises:
        ConfigError: the model of the setting is unknown, or what one needs is missing.
    """
    found: dict[str, ChatModel] = {}
    by_name: dict[str | None, ChatModel] = {}
    for agent in catalog.agents.values():
        wanted = agent.model if agent.model is not None else settings.ai.model
        if wanted is None or isinstance(wanted, str):
            if wanted not in by_name:
                by_name[wanted] = _of_setting(settings) if agent.model is None else _of_agent(wanted, settings)
            found[agent.name] = by_name[wanted]
        else:
            found[agent.name] = _of_agent(wanted, settings)
    return AgentModels(found, by_name.values())


def wrong_model(model: object, settings: Settings) -> str | None:
    """Say why what an agent names as its model cannot be used, or None."""
    try:
        _of_agent(model, settings)
    except ConfigError as error:
        return "; ".join(error.problems)
    return None


def _of_agent(model: object, settings: Settings) -> ChatModel:
    return resolve_model(model, settings.provider)


def _of_setting(settings: Settings) -> ChatModel:
    try:
        return resolve_model(settings.ai.model, settings.provider)
    except ConfigError as error:
        source = settings.sources.get("ai.model")
        if source is None:
            raise
        raise ConfigError(*(f"'ai.model' from {source}: {problem}" for problem in error.problems)) from error
