"""From errors to the protocol's: one table, and no text of an exception that nobody expected ever leaves.

https://a2a-protocol.org/v1.0.0/specification/#332-error-handling
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, ParamSpec, TypeVar

from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.proto_utils import validate_proto_required_fields

from amoxi_py.errors import (
    AmoxiError,
    ArgumentsInvalid,
    Conflict,
    InvalidRequest,
    NotFound,
    RequestError,
    StoreUnavailable,
    TooMany,
)
from amoxi_py.surfaces.a2a.bodies import made_of

log = logging.getLogger("amoxi_py.a2a")

P = ParamSpec("P")
T = TypeVar("T")

STORE_AWAY = "the server cannot reach its store now; send it again in a moment (with the same messageId)"
FAILED = "the server failed; it has been logged"
NO_CONTEXT = "there is no such contextId: leave contextId out; the answer has one"
MESSAGE_REUSED = "this messageId was used with another message; give each message its own"


class TooManyNow(A2AError):
    """No more is admitted now; the protocol has no error of its own for that. `retry_after` is in whole seconds."""

    def __init__(self, error: TooMany) -> None:
        self.reason = error.code.upper()
        self.retry_after = max(1, math.ceil(error.retry_after))
        super().__init__(str(error), {"code": error.code, "retryAfter": str(self.retry_after)})


def a2a_error(error: Exception) -> A2AError:
    """Return what a caller is told of an error; one that nobody expected is logged."""
    if isinstance(error, A2AError):
        return error
    if isinstance(error, AmoxiError):
        told = _of_ours(error)
        if told is not None:
            return told
    log.error("a request failed", exc_info=error)
    return InternalError(FAILED)


def is_store_away(error: A2AError) -> bool:
    """Whether an error tells that the store cannot be reached now, so that the same request may work in a moment."""
    return error.message == STORE_AWAY


def _of_ours(error: AmoxiError) -> A2AError | None:
    if isinstance(error, StoreUnavailable):
        log.warning("the store cannot be used: %s", error)
        return InternalError(STORE_AWAY)
    if isinstance(error, NotFound):
        if error.kind == "conversation":
            return InvalidParamsError(NO_CONTEXT)
        return TaskNotFoundError()
    if isinstance(error, Conflict) and error.code == "idempotency_key_reused":
        return InvalidParamsError(MESSAGE_REUSED)
    if isinstance(error, InvalidRequest | ArgumentsInvalid):
        return InvalidParamsError(str(error))
    if isinstance(error, TooMany):
        return TooManyNow(error)
    if isinstance(error, RequestError):
        return UnsupportedOperationError(str(error))
    return None


def answering(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Look at the required fields of a request before a method, and map what it raises."""

    @functools.wraps(method)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            await _check_required(_params(args, kwargs))
            return await method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the boundary of this door
            raise a2a_error(error) from None

    return answer


def streaming(method: Callable[P, AsyncGenerator[T, None]]) -> Callable[P, AsyncGenerator[T, None]]:
    """Do the same for a method that gives one event after the other."""

    @functools.wraps(method)
    async def stream(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        try:
            await _check_required(_params(args, kwargs))
            async with aclosing(method(*args, **kwargs)) as events:
                async for event in events:
                    yield event
        except Exception as error:  # noqa: BLE001 - the boundary of this door
            raise a2a_error(error) from None

    return stream


async def _check_required(params: Any) -> None:
    await made_of(params, lambda: validate_proto_required_fields(params))  # it looks at each value of data parts too


def _params(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the request of a method of the handler, its first argument but for the handler itself."""
    return args[1] if len(args) > 1 else kwargs["params"]
