"""From a class that is marked as an agent to its frozen `AgentDefinition`, with every mistake noted."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amoxi_py.declare.agent import AgentMark
from amoxi_py.declare.allow import read_allow
from amoxi_py.declare.annotations import injected_parameters
from amoxi_py.declare.callables import as_async, is_generator
from amoxi_py.declare.callee import Callee, callee_in_class
from amoxi_py.declare.compaction import Compaction, compaction_mistakes
from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import AgentDefinition, Instances, ToolDefinition
from amoxi_py.declare.docstring import first_paragraph
from amoxi_py.declare.ingredient import Wishes
from amoxi_py.declare.marks import LocalNames, option_names
from amoxi_py.declare.memory_tools import with_memory_tools
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.roles import is_role
from amoxi_py.declare.structured_result import read_result_form
from amoxi_py.declare.tool_definition import check_flag
from amoxi_py.domain.budget import Budget
from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.errors import ValueNotStorable

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME = 60  # `ask_<name>` is a tool's name of 64 at most
_ON_BUSY = (None, "replace", "queue", "reject")

WhatIsWrong = Callable[[object], str | None]
Asked = Callable[[Instances, RunContext], Awaitable[Any]]
Instructions = str | Callable[[Instances, RunContext], Awaitable[str]]


def agent_name(cls: type[Any]) -> str:
    """Return the name on the wire: `SupportAgent` is `support-agent`."""
    return _WORDS.sub("-", cls.__name__).replace("_", "-").strip("-").lower()


def agent_where(cls: type[Any]) -> str:
    """Return how messages name an agent."""
    return f"{cls.__module__}: agent {agent_name(cls)!r}"


def has_instructions_method(cls: type[Any]) -> bool:
    """Whether an instance is needed, to ask it for its instructions."""
    return callable(getattr(cls, "instructions", None))


def define_agent(
    cls: type[Any],
    mark: AgentMark,
    tools: tuple[ToolDefinition, ...],
    mistakes: Mistakes,
    wishes: Wishes,
    what_is_wrong: WhatIsWrong = lambda model: None,
) -> AgentDefinition:
    """Return the definition; when mistakes were noted it is not fit for use, but its name is right.

    Args:
        cls: The class of the agent.
        mark: Its options.
        tools: Its tools, in order.
        mistakes: Where mistakes are noted.
        wishes: Where it is noted what its instructions are to be given.
        what_is_wrong: Says why a model cannot be used, or None.
    """
    name, where = agent_name(cls), agent_where(cls)
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        mistakes.add(
            where, f"a name on the wire has ASCII letters, digits and `-`, up to {_LONGEST_NAME}; rename the class"
        )
    _check_options(mark, where, mistakes)
    chooses = _is_function(mark.model)
    if not chooses:
        _check_model(mark.model, where, mistakes, what_is_wrong)
    docstring = inspect.cleandoc(clean_text(cls.__doc__ or "")).strip()
    described = clean_text(mark.description) if isinstance(mark.description, str) else ""
    return AgentDefinition(
        name=name,
        description=described or first_paragraph(docstring),
        instructions=_instructions(cls, mark.names, docstring, where, mistakes, wishes),
        tools=with_memory_tools(tools, where, mistakes) if mark.memory is True else tools,
        where=f"{cls.__module__}.{cls.__qualname__}",
        model=None if chooses else mark.model,
        choose_model=_chooser(mark, where, mistakes, wishes) if chooses else None,
        model_options=_model_options(mark.model_options, where, mistakes),
        max_turns=mark.max_turns,
        on_busy=mark.on_busy,
        expose=mark.expose,
        allow=read_allow(mark.allow, where, mistakes),
        readers=_readers(mark.readers, where, mistakes),
        compaction=_compaction(mark.compaction, where, mistakes),
        result=read_result_form(mark.result, tools, where, mistakes),
        budget=_budget(mark.budget, where, mistakes),
        memory=mark.memory is True,
    )


def _compaction(compaction: Compaction | bool | None, where: str, mistakes: Mistakes) -> Compaction | None:
    for sentence in compaction_mistakes(compaction):
        mistakes.add(where, sentence)
    if isinstance(compaction, Compaction):
        return compaction
    return None if compaction is False else Compaction()


def _budget(budget: Budget | None, where: str, mistakes: Mistakes) -> Budget | None:
    if budget is None:
        return None
    if not isinstance(budget, Budget):
        mistakes.add(where, f"`budget={budget!r}` must be a Budget, such as Budget(tokens=50_000)")
        return None
    for sentence in budget.mistakes():
        mistakes.add(where, f"its `budget` {sentence}" if sentence.startswith("has") else f"`budget`: {sentence}")
    return budget


def _readers(readers: object, where: str, mistakes: Mistakes) -> str | None:
    if readers is None:
        return None
    if isinstance(readers, str) and is_role(readers):
        return readers.removeprefix("role:")
    mistakes.add(where, f'`readers={readers!r}` must be "role:<name>"; without it, only the owner reads')
    return None


def _check_options(mark: AgentMark, where: str, mistakes: Mistakes) -> None:
    check_flag("expose", mark.expose, where, mistakes)
    check_flag("memory", mark.memory, where, mistakes)
    mistakes.add_options(where, "agent", mark.unknown, option_names(AgentMark))
    if isinstance(mark.max_turns, bool) or not isinstance(mark.max_turns, int) or mark.max_turns < 1:
        mistakes.add(where, f"`max_turns={mark.max_turns!r}` must be a whole number from 1 up")
    if mark.on_busy not in _ON_BUSY:
        mistakes.add(where, f"`on_busy={mark.on_busy!r}` must be 'replace', 'queue' or 'reject'")
    if mark.description is not None and not isinstance(mark.description, str):
        mistakes.add(where, f"`description={mark.description!r}` must be text")


def _check_model(model: object, where: str, mistakes: Mistakes, what_is_wrong: WhatIsWrong) -> None:
    if model is None:
        return
    if model == "":
        mistakes.add(where, "`model=''` has an empty name; leave it out to take the setting's")
    elif isinstance(model, (list, tuple)) and not model:
        mistakes.add(where, f"`model={model!r}` names no model; leave it out to take the setting's")
    elif (wrong := what_is_wrong(model)) is not None:
        mistakes.add(where, f"`model`: {wrong}")


def _model_options(options: object, where: str, mistakes: Mistakes) -> Mapping[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        mistakes.add(where, f"`model_options={options!r}` must be a dict, such as {{'temperature': 0.2}}")
        return {}
    try:
        encode_json(dict(options))
    except ValueNotStorable as error:
        mistakes.add(where, f"`model_options` cannot be sent to a provider: {error}")
    return dict(options)


def _is_function(model: object) -> bool:
    """Whether it is asked for the model; an object that can be called and streams is a model itself."""
    return callable(model) and not isinstance(model, type) and not callable(getattr(model, "stream", None))


def _chooser(mark: AgentMark, where: str, mistakes: Mistakes, wishes: Wishes) -> Asked | None:
    callee = Callee(function=mark.model)
    try:
        declared = callee.parameters()
    except (ValueError, TypeError, NameError) as error:
        mistakes.add(where, f"the signature of `model` cannot be read: {error}")
        return None
    if declared and declared[0].name == "self":
        mistakes.add(
            where,
            "`model` is a method without its instance; name a function `(ctx) -> model`, which can be given the "
            "instance by `Annotated[..., Inject]`",
        )
        return None
    return _asked(callee, "model", "a model", mark.names, where, mistakes, wishes)


def _instructions(
    cls: type[Any], names: LocalNames, docstring: str, where: str, mistakes: Mistakes, wishes: Wishes
) -> Instructions:
    if not has_instructions_method(cls):
        if hasattr(cls, "instructions"):
            mistakes.add(
                where, "`instructions` must be a method `instructions(self, ctx)`; a fixed text is the docstring"
            )
        elif not docstring:
            mistakes.add(where, "it has no instructions; write a docstring, or a method `instructions(self, ctx)`")
        return docstring
    ask = _asked(callee_in_class(cls, "instructions"), "instructions", "text", names, where, mistakes, wishes)

    async def ask_for_text(instances: Instances, ctx: RunContext) -> str:
        text = await ask(instances, ctx)
        if not isinstance(text, str):
            raise TypeError(f"{where}: `instructions` returned {type(text).__qualname__!r}, not text")
        return text

    return ask_for_text


def _asked(
    callee: Callee, option: str, gives: str, names: LocalNames, where: str, mistakes: Mistakes, wishes: Wishes
) -> Asked:
    """Return how a function that takes the context, and what is injected, is asked."""
    parameters = callee.parameters()
    injected = injected_parameters(callee.function, parameters, names)
    wishes.add(f"{where}: its `{option}`", injected)
    parameters = [p for p in parameters if p.name not in {one.name for one in injected}]
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) > 1 or is_generator(callee.function):
        mistakes.add(where, f"`{option}` takes the context and what is injected, and returns {gives}")
    context = parameters[0].name if parameters else None
    run = as_async(callee.function)

    async def ask(instances: Instances, ctx: RunContext) -> Any:
        bound, given = callee.bind(instances), {} if context is None else {context: ctx}
        if injected:
            return await instances.inject(injected, ctx, lambda things: run(ctx, bound, {**given, **things}))
        return await run(ctx, bound, given)

    return ask
