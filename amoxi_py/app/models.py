"""Which model answers for which agent: looked up once, when the process starts, and closed when it stops.

An agent whose model is a function of the app is the exception: that is asked when a process takes up a run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from amoxi_py.config.settings import Settings
from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import AgentDefinition, Catalog, Instances
from amoxi_py.domain.usage import Usage
from amoxi_py.engine.parts import ModelFacts
from amoxi_py.errors import ConfigError, DeclarationError, ModelFailed
from amoxi_py.models.fallback import FallbackModel
from amoxi_py.models.history import check_request
from amoxi_py.models.lookup import Made, resolve_model
from amoxi_py.models.options import options_problems
from amoxi_py.models.pool import ModelPool, PooledModel, close_models
from amoxi_py.models.prices import cost_of, unpriced
from amoxi_py.ports.chat_model import ChatModel, ModelRequest

log = logging.getLogger("amoxi_py.app")


class AgentModels(ModelFacts):
    """The models of all agents, by the agent's name.

    Args:
        by_agent: Those that are known before any run.
        made: Those of them that were made here of a name. An object that an agent was given is its giver's to close.
        choose: Asks the function of an agent for the model of a run; raises `ModelFailed`.
        pool: Where the models that functions make are kept.
    """

    def __init__(
        self,
        by_agent: Mapping[str, ChatModel],
        made: Iterable[ChatModel] = (),
        choose: Callable[[AgentDefinition, RunContext], Awaitable[ChatModel]] | None = None,
        pool: ModelPool | None = None,
    ) -> None:
        self._by_agent = by_agent
        self._made = made
        self._choose = choose
        self._pool = pool or ModelPool()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models that are in use."""
        return tuple(sorted({model.name for model in self._by_agent.values()}))

    async def model_for(self, agent: AgentDefinition, ctx: RunContext) -> ChatModel:
        """Return the agent's model for a run."""
        if self._choose is not None and agent.name not in self._by_agent:
            return PooledModel(await self._choose(agent, ctx), self._pool)
        return self._by_agent[agent.name]

    def cost_of(self, model: str, usage: Usage) -> int | None:
        return cost_of(model, usage) if usage.input_tokens or usage.output_tokens else 0

    def unpriced(self, agent: AgentDefinition) -> tuple[str, ...]:
        model = self._by_agent.get(agent.name)
        return () if model is None else unpriced(model.name)

    def problems_of(self, request: ModelRequest) -> list[str]:
        return check_request(request)

    async def aclose(self) -> None:
        """Close the connections of the models that were made here; what fails is logged."""
        await close_models(self._made)
        await self._pool.aclose()


def find_models(
    catalog: Catalog, settings: Settings, instances: Instances | None = None, pool: ModelPool | None = None
) -> AgentModels:
    """Return the model of each agent: its own, else `ai.model`, else by the provider's key that is there.

    Args:
        catalog: The agents.
        settings: Where keys are, and the default.
        instances: What functions that choose a model are given; without it none is asked.
        pool: Where the models are kept that functions make.

    Raises:
        DeclarationError: an agent's `model_options` cannot be.
        ConfigError: the model of the setting is unknown, what one needs is missing, or a budget in money counts one
            whose price is unknown.
    """
    _check_options(catalog)
    found: dict[str, ChatModel] = {}
    made: Made = {}
    chains: dict[object, ChatModel] = {}
    for agent in catalog.agents.values():
        if agent.choose_model is not None:
            continue
        if agent.model is None:
            model = _of_setting(settings, made)
        else:
            model = resolve_model(agent.model, settings.model_variables, made)
        if isinstance(model, FallbackModel) and model.identity is not None:
            model = chains.setdefault(model.identity, model)  # agents with the same list learn from each other
        found[agent.name] = model
    pool = pool or ModelPool()
    choose = None if instances is None else _Chooser(instances, settings, made, pool)
    models = AgentModels(found, made.values(), choose, pool)
    _check_prices(catalog, models)
    return models


def _check_options(catalog: Catalog) -> None:
    """Refuse `model_options` that no model could be asked with."""
    problems = [
        f"{agent.where}: {problem}, in `model_options`"
        for agent in catalog.agents.values()
        for problem in options_problems(agent.model_options)
    ]
    if problems:
        raise DeclarationError(*problems)


def _check_prices(catalog: Catalog, models: AgentModels) -> None:
    """Refuse a budget in money where the price of a model that counts against it is not known."""
    problems = []
    for agent in catalog.agents.values():
        if agent.budget is not None and agent.budget.usd is not None:
            for name in (agent.name, *sorted(_below(agent, catalog) - {agent.name})):
                problems += [
                    f"the agent {agent.name!r} has a budget in US dollars, but the price of the model {model!r} is "
                    "unknown; limit its tokens or turns instead"
                    for model in models.unpriced(catalog.agents[name])
                ]
    if problems:
        raise ConfigError(*dict.fromkeys(problems))


def _below(agent: AgentDefinition, catalog: Catalog) -> set[str]:
    """Return the names of the agents that an agent asks, and of those that they ask."""
    found: set[str] = set()
    left = [agent]
    while left:
        asked = {tool.asks for tool in left.pop().tools if tool.asks is not None} - found
        found |= asked
        left += [catalog.agents[name] for name in asked]
    return found


def wrong_model(model: object, settings: Settings) -> str | None:
    """Say why what an agent names as its model cannot be used, or None."""
    try:
        resolve_model(model, settings.model_variables)
    except ConfigError as error:
        return "; ".join(error.problems)
    return None


def model_of_setting(settings: Settings) -> ChatModel:
    """Return the model of agents that name none; raise `ConfigError`."""
    return _of_setting(settings, {})


class _Chooser:
    """Asks an agent's function for a model; what it raises is tried again, and what is no model ends the run."""

    def __init__(self, instances: Instances, settings: Settings, made: Made, pool: ModelPool) -> None:
        self._instances = instances
        self._settings = settings
        self._made = made
        self._pool = pool

    async def __call__(self, agent: AgentDefinition, ctx: RunContext) -> ChatModel:
        assert agent.choose_model is not None
        try:
            wanted = await agent.choose_model(self._instances, ctx)
        except Exception as error:  # the app's own code, in a worker's attempt
            log.exception("the function that chooses the model of %s failed", agent.where)
            raise ModelFailed(
                f"the function that chooses the model raised {type(error).__qualname__}", code="model_choice_failed"
            ) from error
        try:
            return self._resolve(wanted)
        except ConfigError as error:
            text = f"the function that chooses the model of {agent.where} gave none: {'; '.join(error.problems)}"
            raise ModelFailed(text, code="model_choice_failed", retryable=False) from error

    def _resolve(self, wanted: object) -> ChatModel:
        if wanted is None:
            return _of_setting(self._settings, self._made)
        if isinstance(wanted, (list, tuple)):
            chain = [self._shared(one) for one in wanted]
            return resolve_model(chain, self._settings.model_variables, self._made)
        return self._one(wanted)

    def _one(self, wanted: object) -> ChatModel:
        """Return the model; only those of a name are kept until the process stops, objects are the pool's."""
        made = self._made if isinstance(wanted, str) else {}
        return resolve_model(wanted, self._settings.model_variables, made)

    def _shared(self, member: object) -> object:
        """Return a member of a chain such that it shares the connections of equal ones, whatever stands beside it."""
        if isinstance(member, (str, list, tuple)):
            return member
        model = self._one(member)
        return PooledModel(model, self._pool) if getattr(model, "identity", None) is not None else model


def _of_setting(settings: Settings, made: Made) -> ChatModel:
    try:
        return resolve_model(settings.ai.model, settings.model_variables, made)
    except ConfigError as error:
        source = settings.sources.get("ai.model")
        if source is None:
            way_out = "or name another one, such as AI_MODEL=offline"
            raise ConfigError(*(f"{problem}; {way_out}" for problem in error.problems)) from error
        raise ConfigError(*(f"'ai.model' from {source}: {problem}" for problem in error.problems)) from error
