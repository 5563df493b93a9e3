"""Steps of one call: each name once, run once, recorded once, and from the record ever after."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from amoxi_py.declare.callables import is_async
from amoxi_py.declare.step import StepOptions, step_options
from amoxi_py.domain.encoding import clean_text, decode_json, encode_json
from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.engine import tracing
from amoxi_py.engine.exits import cancelled_from_outside
from amoxi_py.engine.redaction import NOTHING_HIDDEN, Redaction
from amoxi_py.engine.values import decode_value, encode_value
from amoxi_py.errors import StepError, ToolError, ValueNotStorable
from amoxi_py.ports.transactions import Work, WorkFailed

T = TypeVar("T")
_in_transaction: contextvars.ContextVar[bool] = contextvars.ContextVar("amoxi_in_transaction", default=False)
"""One inside another would wait for a second of the few connections while it keeps the first."""
Commit = Callable[[str, Work, bool], Awaitable[StepRecord]]
"""Does work in a transaction that records its outcome as the step of this name; True for work in a thread."""


def belongs_to_transaction() -> None:
    """Say that what goes on in the current context is inside a transaction: another one is refused there."""
    _in_transaction.set(True)


class StepHost(Protocol):
    """What a step needs of the try that it is part of."""

    def run_in_thread(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Run a sync function in a thread."""
        ...

    def raise_if_closed(self) -> None:
        """End the tool when its context is closed."""
        ...


class Steps:
    """The steps of one try of one call: `records` are from earlier, `record` and `commit` store new ones.

    `counts` gets how many were `executed` and `replayed`.
    """

    def __init__(
        self,
        *,
        records: Iterable[StepRecord],
        record: Callable[[StepRecord], Awaitable[None]],
        commit: Commit,
        prove: Callable[[], Awaitable[None]],
        redaction: Redaction = NOTHING_HIDDEN,
        counts: dict[str, int] | None = None,
    ) -> None:
        self._counts = counts
        self._records = {step.name: step for step in records}
        self._record = record
        self._commit = commit
        self._prove = prove
        self._redaction = redaction
        self._used: set[str] = set()

    @classmethod
    def refusing(cls, where: str) -> Steps:
        """Return steps for code that only looks: none can be taken."""

        async def refuse(*_of: object) -> Any:
            raise ValueError(f"a step can only be taken in the tool itself, not in {where}")

        return cls(records=(), record=refuse, commit=refuse, prove=refuse)

    async def run(self, name: str, fn: Callable[..., Any], bound: Callable[[], Any], host: StepHost) -> Any:
        """Return the recorded outcome of a step, or run it and record it."""
        name = self._use(name)
        known = self._known(name)
        if known is not None:
            return _replay(known)
        await self._prove()
        host.raise_if_closed()
        with tracing.step(name):
            record = self._redaction.step(await _execute(name, fn, bound, host))
        host.raise_if_closed()
        await self._record(record)
        return _replay(record)

    async def transact(
        self, name: str, fn: Callable[..., Any], bound: Callable[[Any], Any], host: StepHost, *, threaded: bool
    ) -> Any:
        """Do the same for a step whose record is committed with what it does in the app's database."""
        if threaded and is_async(fn):
            raise TypeError(f"transaction {name!r}: in a sync tool the function is a sync one too, not {fn!r}")
        if _in_transaction.get():
            raise ValueError(
                f"transaction {name!r} is asked for inside another one; do what is in it there, or after it"
            )
        name = self._use(name)
        known = self._known(name)
        if known is not None:
            return _replay(known)
        options = step_options(fn)
        work = functools.partial(_work, name, options, bound, host, threaded, self._redaction.step)
        failures = 0
        while True:
            await self._prove()
            host.raise_if_closed()
            within = _in_transaction.set(True)
            try:
                with tracing.step(name):
                    record = await self._commit(name, work, threaded)
                return _replay(record)
            except WorkFailed as failed:
                error = failed.error
            finally:
                _in_transaction.reset(within)
            host.raise_if_closed()
            failures += 1
            pause = _pause_before_retry(options, failures)
            if pause is None or isinstance(error, ValueNotStorable):
                break
            await asyncio.sleep(pause)
        record = self._redaction.step(_failed(name, error))
        await self._record(record)
        return _replay(record)

    def _known(self, name: str) -> StepRecord | None:
        known = self._records.get(name)
        if self._counts is not None:
            self._counts["executed" if known is None else "replayed"] += 1
        return known

    def _use(self, name: str) -> str:
        if not isinstance(name, str) or not name or len(name) > 200:
            raise ValueError(f"a step's name must be text of 1 to 200 characters, not {name!r}")
        name = self._redaction.text(name)
        if name in self._used:
            raise ValueError(
                f"the step name {name!r} was used before in this call; give each step its own, such as {name + '-2'!r}"
            )
        self._used.add(name)
        return name


def _replay(record: StepRecord) -> Any:
    if record.failed:
        type_name, text, *for_model = decode_json(record.value)
        if type_name == ValueNotStorable.__name__:
            raise ValueNotStorable(text)
        raise StepError(record.name, type_name, text, for_model=bool(for_model))
    try:
        return decode_value(record.value)
    except ValueNotStorable as error:
        raise ValueNotStorable(f"step {record.name!r}: {error}") from None


async def _execute(name: str, fn: Callable[..., Any], bound: Callable[[], Any], host: StepHost) -> StepRecord:
    options = step_options(fn)
    failures = 0
    while True:
        try:
            async with asyncio.timeout(options.timeout):
                value = await _call(bound, fn, host)
        except GeneratorExit:
            raise
        except BaseException as error:
            if cancelled_from_outside(error):
                raise
            failures += 1
            pause = _pause_before_retry(options, failures)
            if pause is None:
                return _failed(name, error)
            await asyncio.sleep(pause)
            host.raise_if_closed()
        else:
            return _recorded(name, value)


async def _work(
    name: str,
    options: StepOptions,
    bound: Callable[[Any], Any],
    host: StepHost,
    threaded: bool,
    hide: Callable[[StepRecord], StepRecord],
    connection: Any,
) -> StepRecord:
    try:
        async with asyncio.timeout(options.timeout):
            value = await _call_with(connection, name, bound, host, threaded)
        host.raise_if_closed()
        try:
            record = hide(StepRecord(name=name, value=encode_value(value)))
        except ValueNotStorable as error:
            raise ValueNotStorable(f"transaction {name!r}: {error}") from None
        if record.failed:
            raise ValueNotStorable(decode_json(record.value)[1])
        return record
    except GeneratorExit:
        raise
    except BaseException as error:
        if cancelled_from_outside(error):
            raise
        raise WorkFailed(error) from error


async def _call_with(connection: Any, name: str, bound: Callable[[Any], Any], host: StepHost, threaded: bool) -> Any:
    if not threaded:
        value = bound(connection)
        if not inspect.isawaitable(value):
            raise TypeError(f"transaction {name!r}: in an async tool the function is an async one too")
        return await value
    in_context = contextvars.copy_context().run
    value = await host.run_in_thread(functools.partial(in_context, bound, connection))
    if inspect.isawaitable(value):
        raise TypeError(f"transaction {name!r}: in a sync tool the function is a sync one too")
    return value


def _pause_before_retry(options: StepOptions, failures: int) -> float | None:
    policy = RetryPolicy(tries=options.retries + 1, first=0.1, longest=5.0)
    return retry_delay(policy, failures, chance=random.random())  # noqa: S311 - spreads tries, hides nothing


def _recorded(name: str, value: Any) -> StepRecord:
    try:
        return StepRecord(name=name, value=encode_value(value))
    except ValueNotStorable as error:  # its effect has happened, so this is its outcome: it must not run again
        return _failed(name, ValueNotStorable(f"step {name!r}: {error}"))


def _failed(name: str, error: BaseException) -> StepRecord:
    told = [type(error).__qualname__, error_text(error), *([True] if isinstance(error, ToolError) else [])]
    return StepRecord(name=name, value=encode_json(told), failed=True)


def error_text(error: BaseException) -> str:
    """Return what an exception says, at most 2,000 characters, or nothing when it cannot say it."""
    try:
        return clean_text(str(error))[:2000]
    except Exception:  # noqa: BLE001 - an app's exception may raise in its own `__str__`
        return ""


async def _call(bound: Callable[[], Any], fn: Callable[..., Any], host: StepHost) -> Any:
    if is_async(fn):
        return await bound()
    value = await host.run_in_thread(functools.partial(contextvars.copy_context().run, bound))
    return await value if inspect.isawaitable(value) else value
