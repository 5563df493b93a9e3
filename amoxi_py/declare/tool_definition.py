"""From a function that is marked as a tool to its frozen `ToolDefinition`, with every mistake noted."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from amoxi_py.declare.allow import read_allow
from amoxi_py.declare.approver import read_approver
from amoxi_py.declare.arguments import read_parameters
from amoxi_py.declare.callables import as_async, innermost, is_generator, speaks_async
from amoxi_py.declare.callee import Callee
from amoxi_py.declare.context import CallContext
from amoxi_py.declare.definitions import Done, Instances, NotDone, Reconciled, ToolDefinition, Unknown
from amoxi_py.declare.docstring import read_docstring
from amoxi_py.declare.hooks import Hook, read_hook
from amoxi_py.declare.ingredient import Wishes
from amoxi_py.declare.marks import option_names
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.result import read_result
from amoxi_py.declare.roles import is_role
from amoxi_py.declare.signature import ToolSignature, read_signature
from amoxi_py.declare.step import is_seconds
from amoxi_py.declare.tool import ToolMark
from amoxi_py.domain.approval import FUNCTION, OWNER
from amoxi_py.domain.tool_call import Effect

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,63}")
_LOG = logging.getLogger(__name__)


def define_tool(callee: Callee, mark: ToolMark, mistakes: Mistakes, wishes: Wishes) -> ToolDefinition:
    """Return the definition, and add what it is to be given to `wishes`.

    When mistakes were noted it is not fit for use, but its name is right.
    """
    name = callee.name if mark.name is None else str(mark.name)
    where = f"{callee.module}: tool {name!r}"
    if not _NAME.fullmatch(name):
        mistakes.add(
            where, "a name on the wire starts with a letter and has letters, digits and `_`, up to 64; give `name=`"
        )
    if is_generator(callee.function):
        mistakes.add(where, "it is a generator, but a tool has one result; return a list, or call `ctx.progress(...)`")
    signature = read_signature(callee.function, mark.names, where, mistakes, method=callee.owner is not None)
    wishes.add(where, signature.injected)
    texts = read_docstring(_docstring(callee.function))
    arguments = read_parameters(signature.parameters, texts.parameters, where, mistakes)
    _warn(where, texts.warnings, set(texts.parameters) - signature.names() - signature.given())
    result = read_result(signature.returns, where, mistakes)
    mistakes.add_options(where, "tool", mark.unknown, option_names(ToolMark))
    effect = _effect(mark, where, mistakes)
    approver = _approver(mark, where, mistakes)
    may_decide = None
    if approver == FUNCTION:
        may_decide = read_approver(mark.approver, callee.owner, mark.names, where, mistakes)
    _check_options(mark, effect, where, mistakes)
    return ToolDefinition(
        name=name,
        description=texts.description,
        parameters=arguments.schema,
        output_schema=result.schema,
        effect=effect,
        where=f"{callee.module}.{callee.qualified_name}",
        read_arguments=arguments.read,
        call=_caller(callee, signature),
        encode_result=result.encode,
        needs_approval=_needs_approval(mark, callee, signature, where, mistakes, wishes),
        approver=approver,
        may_decide=None if may_decide is None else may_decide.ask,
        wants=() if may_decide is None else may_decide.types(),
        allow=read_allow(mark.allow, where, mistakes),
        expose=mark.expose,
        timeout=mark.timeout,
        retries=mark.retries,
        reconcile=_reconcile(mark, effect, callee, signature, where, mistakes, wishes),
        sync=not speaks_async(callee.function),
        takes_context=bool(signature.contexts),
    )


def check_flag(name: str, value: object, where: str, mistakes: Mistakes) -> None:
    """Note when an option is no boolean."""
    if not isinstance(value, bool):
        mistakes.add(where, f"`{name}={value!r}` must be True or False")


def _docstring(function: Callable[..., Any]) -> str | None:
    inner = innermost(function)
    if inspect.isroutine(inner):
        return inspect.getdoc(inner)
    return inspect.getdoc(type(inner).__call__) if type(inner).__doc__ is None else inspect.getdoc(inner)


def _warn(where: str, warnings: tuple[str, ...], unknown: set[str]) -> None:
    for warning in warnings:
        _LOG.warning("%s: %s", where, warning)
    for name in sorted(unknown):
        _LOG.warning("%s: the docstring tells of %r, which is no parameter", where, name)


def _effect(mark: ToolMark, where: str, mistakes: Mistakes) -> Effect:
    check_flag("read_only", mark.read_only, where, mistakes)
    check_flag("idempotent", mark.idempotent, where, mistakes)
    if mark.read_only and mark.idempotent:
        mistakes.add(
            where, "`read_only` and `idempotent` exclude each other; a tool that changes nothing is `read_only`"
        )
    if mark.read_only:
        return Effect.READ_ONLY
    return Effect.IDEMPOTENT if mark.idempotent else Effect.UNSAFE


def _check_options(mark: ToolMark, effect: Effect, where: str, mistakes: Mistakes) -> None:
    check_flag("expose", mark.expose, where, mistakes)
    if mark.timeout is not None and not is_seconds(mark.timeout):
        mistakes.add(where, f"`timeout={mark.timeout!r}` must be seconds above 0")
    if isinstance(mark.retries, bool) or not isinstance(mark.retries, int) or mark.retries < 0:
        mistakes.add(where, f"`retries={mark.retries!r}` must be a whole number from 0 up")
    elif mark.retries and not effect.repeatable:
        mistakes.add(
            where,
            f"`retries={mark.retries}` would run an unsafe tool again; "
            "mark it `idempotent=True` if repeating it is safe, or retry single steps with @step(retries=...)",
        )


def _approver(mark: ToolMark, where: str, mistakes: Mistakes) -> str:
    approver: object = mark.approver
    if approver is None or approver == OWNER:
        return OWNER
    if isinstance(approver, str) and is_role(approver):
        return approver
    if callable(approver):
        return FUNCTION
    mistakes.add(
        where,
        f'`approver={approver!r}` must be "role:<name>" or a function `(principal, approval) -> bool`; '
        "without it, the one who asks decides",
    )
    return OWNER


def _needs_approval(
    mark: ToolMark, callee: Callee, signature: ToolSignature, where: str, mistakes: Mistakes, wishes: Wishes
) -> bool | Hook:
    if isinstance(mark.needs_approval, bool):
        return mark.needs_approval
    if not callable(mark.needs_approval):
        mistakes.add(where, f"`needs_approval={mark.needs_approval!r}` must be True, False or a function")
        return True
    option, names = mark.needs_approval, mark.names
    hook = read_hook("needs_approval", option, callee.owner, signature, names, where, mistakes, wishes)
    if hook is None:
        return True

    async def asked(instances: Instances, ctx: CallContext, arguments: dict[str, Any]) -> bool:
        return bool(await hook(instances, ctx, arguments))

    return asked


def _reconcile(
    mark: ToolMark,
    effect: Effect,
    callee: Callee,
    signature: ToolSignature,
    where: str,
    mistakes: Mistakes,
    wishes: Wishes,
) -> Callable[[Instances, CallContext, dict[str, Any]], Awaitable[Reconciled]] | None:
    if mark.reconcile is None:
        return None
    if effect.repeatable:
        kind = "read_only" if effect is Effect.READ_ONLY else "idempotent"
        mistakes.add(where, f"`reconcile` would never be asked, because a tool that is `{kind}` runs again; remove one")
    option, names = mark.reconcile, mark.names
    hook = read_hook("reconcile", option, callee.owner, signature, names, where, mistakes, wishes)
    if hook is None:
        return None

    async def look(instances: Instances, ctx: CallContext, arguments: dict[str, Any]) -> Reconciled:
        found = await hook(instances, ctx, arguments)
        if isinstance(found, (Done, NotDone, Unknown)):
            return found
        raise TypeError(f"{where}: `reconcile` returned {found!r}; return Done(value), NotDone() or Unknown(reason)")

    return look


def _caller(
    callee: Callee, signature: ToolSignature
) -> Callable[[Instances, CallContext, dict[str, Any]], Awaitable[Any]]:
    run = as_async(callee.function)

    async def call(instances: Instances, ctx: CallContext, arguments: dict[str, Any]) -> Any:
        given = {**arguments, **dict.fromkeys(signature.contexts, ctx)}
        return await run(ctx, callee.bind(instances), given)

    injected = signature.injected
    if not injected:
        return call

    async def call_with_things(instances: Instances, ctx: CallContext, arguments: dict[str, Any]) -> Any:
        return await instances.inject(injected, ctx, lambda things: call(instances, ctx, {**arguments, **things}))

    return call_with_things
