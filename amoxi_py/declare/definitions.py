"""Frozen definitions of tools and agents: all that the engine and the surfaces need to know of a declaration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from amoxi_py.declare.compaction import Compaction
from amoxi_py.declare.context import CallContext, RunContext
from amoxi_py.declare.ingredient import Ingredient
from amoxi_py.domain.budget import Budget
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
        asks: The name of the agent of which a call of this tool is a run, or None; then there is no code to call.
        takes_context: Whether the code is given the context of its call.
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
    asks: str | None = None
    takes_context: bool = True

    @property
    def callable_directly(self) -> bool:
        """Whether a program may call it without an agent: it is shown, and nobody has to be asked first."""
        return self.expose and self.needs_approval is False

    def exists_for(self, principal: Principal) -> bool:
        """Whether this principal may know of the tool."""
        return self.allow is None or self.allow(principal)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultForm:
    """The form of an agent's structured result.

    Attributes:
        description: What its model says of itself.
        parameters: JSON Schema of an object.
        read: From the text of a JSON object to the result as plain JSON values; raises `ArgumentsInvalid`.
        where: The model, for messages to the developer.
    """

    description: str
    parameters: JsonSchema
    read: Callable[[str], Any]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """A declared agent.

    Attributes:
        name: In kebab-case, on the wire.
        description: For lists and other agents.
        instructions: A text, or `(instances, ctx) -> awaitable of text`, asked once per run.
        tools: In the declared order; those that ask other agents come last.
        model: What the declaration says: a name, a model object, a list of these, or None.
        choose_model: `(instances, ctx) -> awaitable of the same`, or None: a function of the app that is asked instead.
        model_options: Passed to the model, such as temperature.
        max_turns: The most model replies in one run.
        on_busy: What a second message does to a busy conversation, or None for the setting.
        where: Module and qualified name.
        readers: The role whose holders may read its runs and conversations besides their owners, or None.
        compaction: When old turns of its conversations give way to a summary, or None for never.
        own_tools: Those that the framework adds when they are needed; one of the app's of the same name comes first.
        result: The form of its structured result, or None when it answers with text alone.
        budget: What a run of it may use, with all below it, or None.
        memory: Whether its instructions are told what is remembered of who asks; the tools for it are in `tools`.
    """

    name: str
    description: str
    instructions: str | Callable[[Instances, RunContext], Awaitable[str]]
    tools: tuple[ToolDefinition, ...]
    where: str
    model: Any = None
    choose_model: Callable[[Instances, RunContext], Awaitable[Any]] | None = None
    model_options: Mapping[str, Any]
    max_turns: int = 20
    on_busy: Literal["replace", "queue", "reject"] | None = None
    expose: bool = True
    allow: Callable[[Principal], bool] | None = None
    readers: str | None = None
    compaction: Compaction | None = Compaction()  # noqa: RUF009 - it is frozen
    own_tools: tuple[ToolDefinition, ...] = ()
    result: ResultForm | None = None
    budget: Budget | None = None
    memory: bool = False

    def exists_for(self, principal: Principal) -> bool:
        """Whether this principal may know of the agent."""
        return self.allow is None or self.allow(principal)

    def tool(self, name: str) -> ToolDefinition | None:
        """Return the agent's tool of this name, if it has one."""
        for tool in (*self.tools, *self.own_tools):
            if tool.name == name:
                return tool
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDefinition:
    """A declared `@before_model`, `@after_model` or `@before_tool`.

    Attributes:
        where: Module and qualified name, for messages to the developer.
        ask: `(instances, run_in_thread, ctx, what it sees) -> awaitable of its answer`.
        wants: Types that it has injected.
        agents: The names of the agents that it is for, or None for all.
        tools: The names of the tools that it is for, or None for all.
        streams: Whether a reply's text may be shown before it was asked.
    """

    where: str
    ask: Callable[..., Awaitable[Any]]
    wants: tuple[type[Any], ...] = ()
    agents: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    streams: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactDefinition:
    """A declared `@redact`: `bind` gives the function; what it hides is at most `longest` characters long, if set."""

    where: str
    bind: Callable[[Instances], Callable[[str], Any]]
    longest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks of an app, each kind in the order of declaration."""

    before_model: tuple[HookDefinition, ...] = ()
    after_model: tuple[HookDefinition, ...] = ()
    before_tool: tuple[HookDefinition, ...] = ()
    redact: tuple[RedactDefinition, ...] = ()

    def asked(self) -> tuple[HookDefinition, ...]:
        """Return those that are asked about requests, replies and calls."""
        return (*self.before_model, *self.after_model, *self.before_tool)


NO_HOOKS = Hooks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All agents and tools of an app, by name; the tools that ask an agent are only in the agents that may do so.

    `direct` has, by the names that such runs have, what stands for an agent in runs of one tool.
    """

    agents: Mapping[str, AgentDefinition]
    tools: Mapping[str, ToolDefinition]
    hooks: Hooks = NO_HOOKS
    direct: Mapping[str, AgentDefinition] = field(default_factory=dict)

    def of_run(self, agent: str) -> AgentDefinition | None:
        """Return what runs with this name are executed with, or None when that is not here."""
        return self.agents.get(agent) or self.direct.get(agent)
