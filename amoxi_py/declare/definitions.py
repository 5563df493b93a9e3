"""Frozen definitions of tools and agents: all that the engine and the surfaces need to know of a declaration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from amoxi_py.declare.context import CallContext, RunContext
from amoxi_py.declare.ingredient import Ingredient
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import Effect

T = TypeVar("T")
JsonSchema = Mapping[str, Any]
MayDecide = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Done:
    """What `reconcile` found: the action was done, and this is the tool's result."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """What `reconcile` found: the action was not done, so the tool may run again with the same `call_id`."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """What `reconcile` found: it cannot be known whether the action was done."""

    reason: str = ""


Reconciled = Done | NotDone | Unknown


class Instances(Protocol):
    """Gives what is there once per process, such as the instance of a `@singleton`, and what is there per call."""

    def get(self, kind: type[Any]) -> Any:
        """Return the instance."""
        ...

    async def inject(
        self, wanted: Iterable[Ingredient], ctx: RunContext, use: Callable[[dict[str, Any]], Awaitable[T]]
    ) -> T:
        """Return what `use` does with these things by name; what was made for it alone is closed when it has ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A declared tool.

    Attributes:
        name: The name on the wire.
        description: What a model reads, without the parameters' texts.
        parameters: JSON Schema of an object, with the parameters' texts.
        output_schema: JSON Schema of the result, or None when the return type says nothing.
        effect: What running it again may do.
        timeout: Seconds, or None.
        retries: Extra tries after a failure; 0 for an unsafe tool.
        expose: Whether MCP and A2A show it.
        approver: `owner`, `role:<name>` or `function`.
        may_decide: The function of an approver that is one: `(instances, run_in_thread, principal, approval)`.
        wants: Types that this function has injected.
        where: Module and qualified name, for messages to the developer.
        read_arguments: From a JSON object to Python values by parameter name; raises `ArgumentsInvalid`.
        call: Runs the tool: `(instances, ctx, arguments) -> awaitable of its return value`. A sync tool runs in the
            pool that `ctx` gives.
        encode_result: From the return value to plain JSON values; raises `ValueNotStorable`.
        needs_approval: `(instances, ctx, arguments) -> awaitable of bool`, or a plain bool.
        allow: Whether the tool exists for this principal.
        reconcile: `(instances, ctx, arguments) -> awaitable of Reconciled`, or None.
    """

    name: str
    description: str
    parameters: JsonSchema
    output_schema: JsonSchema | None
    effect: Effect
    where: str
    read_arguments: Callable[[Mapping[str, Any]], dict[str, Any]]
    call: Callable[[Instances, CallContext, dict[str, Any]], Awaitable[Any]]
    encode_result: Callable[[Any], Any]
    needs_approval: bool | Callable[[Instances, CallContext, dict[str, Any]], Awaitable[bool]] = False
    approver: str = "owner"
    may_decide: MayDecide | None = None
    wants: tuple[type[Any], ...] = ()
    allow: Callable[[Principal], bool] | None = None
    expose: bool = True
    timeout: float | None = None
    retries: int = 0
    reconcile: Callable[[Instances, CallContext, dict[str, Any]], Awaitable[Reconciled]] | None = None
    sync: bool = False

    def exists_for(self, principal: Principal) -> bool:
        """Whether this principal may know of the tool."""
        return self.allow is None or self.allow(principal)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """A declared agent.

    Attributes:
        name: In kebab-case, on the wire.
        description: For lists and other agents.
        instructions: A text, or `(instances, ctx) -> awaitable of text`, asked once per run.
        tools: In the declared order.
        model: What the declaration says: a name, a ChatModel, a list of them, a function of the RunContext, or None.
        model_options: Passed to the model, such as temperature.
        max_turns: The most model replies in one run.
        on_busy: What a second message does to a busy conversation, or None for the setting.
        where: Module and qualified name.
        readers: The role whose holders may read its runs and conversations besides their owners, or None.
    """

    name: str
    description: str
    instructions: str | Callable[[Instances, RunContext], Awaitable[str]]
    tools: tuple[ToolDefinition, ...]
    where: str
    model: Any = None
    model_options: Mapping[str, Any]
    max_turns: int = 20
    on_busy: Literal["replace", "queue", "reject"] | None = None
    expose: bool = True
    allow: Callable[[Principal], bool] | None = None
    readers: str | None = None

    def exists_for(self, principal: Principal) -> bool:
        """Whether this principal may know of the agent."""
        return self.allow is None or self.allow(principal)

    def tool(self, name: str) -> ToolDefinition | None:
        """Return the agent's tool of this name, if it has one."""
        for tool in self.tools:
            if tool.name == name:
                return tool
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All agents and tools of an app, by name."""

    agents: Mapping[str, AgentDefinition]
    tools: Mapping[str, ToolDefinition]
