"""Looks, before each request to a model, whether a run or one above it has used what it may."""

from __future__ import annotations

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.run import RunFailure, RunRows
from amoxi_py.domain.usage import NO_USAGE, Usage
from amoxi_py.engine.journal import Journal
from amoxi_py.engine.parts import Parts


class BudgetUsedUp(Exception):
    """The run must not ask its model any more; `failure` says why."""

    def __init__(self, failure: RunFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Spent:
    """What a run itself has used: `whole`, and in it what is not stored yet."""

    def __init__(self, stored: Usage) -> None:
        self.whole = stored
        self.unstored = NO_USAGE

    def add(self, usage: Usage) -> None:
        """Count what a request has used."""
        self.whole += usage
        self.unstored += usage

    def to_store(self) -> Usage | None:
        """Return the whole for the change that is written now, or None when it is stored as it is."""
        new, self.unstored = self.unstored, NO_USAGE
        return self.whole if new != NO_USAGE else None


async def used_up(
    parts: Parts, journal: Journal, rows: RunRows, agent: AgentDefinition, spent: Spent
) -> RunFailure | None:
    """Return why a run must not ask its model any more, or None.

    A child run counts against the budgets of all runs above it too, and they with all that is below them.
    """
    above = [parts.catalog.agents.get(ancestor.agent) for ancestor in rows.ancestors]
    agents = [*above, agent]
    if all(one is None or one.budget is None for one in agents):
        return None
    usages: tuple[Usage, ...] = (spent.whole,)
    if rows.ancestors or any(tool.asks is not None for tool in agent.tools):
        stored = await journal.persist(lambda: parts.store.usages(rows.lease))
        usages = tuple(usage + spent.unstored for usage in stored)
    began = [*(ancestor.created_at for ancestor in rows.ancestors), rows.created_at or rows.messages[0].created_at]
    now = parts.clock.now()
    for one, used, since in zip(agents, usages, began, strict=True):
        if one is None or one.budget is None:
            continue
        exceeded = one.budget.exceeded(used, now - since)
        if exceeded is not None:
            whose = "its budget" if one is agent else f"the budget of {one.name!r}"
            return RunFailure(code="budget_exceeded", message=f"the run has come to the end of {whose}: {exceeded}")
    if any(one is not None and one.budget is not None and one.budget.usd is not None for one in agents):
        return _price_unknown(parts, agent, spent.whole)
    return None


def _price_unknown(parts: Parts, agent: AgentDefinition, usage: Usage) -> RunFailure | None:
    """Return why money cannot be counted; the model of a function of the app is known by its first reply only."""
    tokens = usage.input_tokens + usage.output_tokens
    if not parts.facts.unpriced(agent) and (agent.choose_model is None or usage.cost or not tokens):
        return None
    return RunFailure(
        code="price_unknown", message="the run has a budget in money, and the price of its model is unknown"
    )
