"""Every error that amoxi_py raises on purpose: one class per reaction, told by who must act.

AmoxiError
├── DeclarationError       the developer: a declared tool, agent or injection cannot work (stops the start)
├── ConfigError            the operator: a setting is unknown or bad (stops the start)
├── InstanceFailed         the developer: what an app is given by type cannot be opened or closed
├── AddressUnusable        the operator: the server cannot listen where it should (stops the start)
├── CommandRefused         who typed it: a command cannot do what it was asked, and has changed nothing
├── RequestError           the caller: the request cannot be done as it is
│   ├── InvalidRequest     ... its content does not fit
│   ├── NotAuthenticated   ... nobody knows who asks
│   ├── Forbidden          ... this principal may see it but not do it
│   ├── NotFound           ... no such thing for this principal
│   ├── Conflict           ... the record is not in a state that allows it
│   └── TooMany            ... it is one too many now; the same request works later
├── StoreUnavailable       the operator: the store cannot be written or read now; nothing was lost
│   └── NotReady           ... by this process; another one may
├── StoreDamaged           the operator: the store's file cannot be used (stops the start)
├── LeaseLost              the worker: another one owns the run now; stop and write nothing
├── ModelFailed            the engine: a model request failed; try again if `retryable`
├── ValueNotStorable       the tool's author: a value cannot be stored and come back the same
├── ArgumentsInvalid       the model: the arguments of a call do not fit, field by field
├── ToolError              the model: what a tool tells it went wrong
└── StepError              the tool: a recorded step ended with an error
"""

from __future__ import annotations

from typing import Any


class AmoxiError(Exception):
    """Base of every error that amoxi_py raises on purpose."""

    code = "error"


class DeclarationError(AmoxiError):
    """Declarations of the app cannot work; `problems` lists all of them, one sentence each."""

    code = "declaration_error"

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        count = len(problems)
        head = "1 mistake in the app's declarations" if count == 1 else f"{count} mistakes in the app's declarations"
        super().__init__(head + ":" + "".join(f"\n  - {problem}" for problem in problems))


class ConfigError(AmoxiError):
    """Settings are unknown or bad; `problems` lists all of them, one sentence each, no secret in any.

    `warnings` are told with them: what stops nothing by itself, but may be the reason.
    """

    code = "config_error"

    def __init__(self, *problems: str, warnings: tuple[str, ...] = ()) -> None:
        self.problems = problems
        self.warnings = warnings
        lines = (*problems, *(f"besides: {warning}" for warning in warnings))
        super().__init__("the settings cannot be used:" + "".join(f"\n  - {line}" for line in lines))


class InstanceFailed(AmoxiError):
    """A provider or singleton failed to open (which stops the start) or to close; the message says which, and how."""

    code = "instance_failed"


class AddressUnusable(AmoxiError):
    """The server cannot listen at its address; the message says why, and the way out."""

    code = "address_unusable"


class CommandRefused(AmoxiError):
    """A command cannot do what it was asked; the message says why, and the way out."""

    code = "command_refused"


class RequestError(AmoxiError):
    """The caller's request cannot be done; the message says why and the way out."""

    code = "bad_request"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidRequest(RequestError):
    """The content of a request does not fit; `errors` names the fields: `{"field": ..., "message": ...}`."""

    code = "invalid_request"

    def __init__(self, message: str, *, code: str | None = None, errors: tuple[dict[str, Any], ...] = ()) -> None:
        super().__init__(message, code=code)
        self.errors = errors


class NotAuthenticated(RequestError):
    """Nobody knows who asks.

    Raise it in an app's `@authenticate` for a sign-in that does not hold, such as an expired one. The text is told to
    who asked, so it must hold no secret.
    """

    code = "not_authenticated"

    def __init__(self, message: str = "the sign-in does not hold; sign in anew", *, code: str | None = None) -> None:
        super().__init__(message, code=code)


class Forbidden(RequestError):
    """This principal may know of the thing, but not do this with it."""

    code = "forbidden"


class NotFound(RequestError):
    """The thing does not exist, or this principal may not know that it does."""

    code = "not_found"

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"no {kind} {id!r}")
        self.kind = kind
        self.id = id


class Conflict(RequestError):
    """The record exists, but not in a state that allows this."""

    code = "conflict"


class TooMany(RequestError):
    """One too many at this moment; the same works after `retry_after` seconds.

    Where limits are set, `code` is `busy`, `too_many_runs`, `too_many_requests` or `daily_budget_used`.
    """

    code = "too_many"

    def __init__(self, message: str, *, retry_after: float, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class StoreUnavailable(AmoxiError):
    """The store cannot be used right now (disk full, database away); what was stored is safe."""

    code = "store_unavailable"


class NotReady(StoreUnavailable):
    """This process can take no traffic now, though others may; the text says which part of it cannot."""

    code = "not_ready"


class StoreDamaged(AmoxiError):
    """The store's file is damaged; the message names it and the way out."""

    code = "store_damaged"


class LeaseLost(AmoxiError):
    """Another worker owns the run now (or it has ended); the work in hand must stop and write nothing."""

    code = "lease_lost"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} is not leased to this worker any more")
        self.run_id = run_id


class ModelFailed(AmoxiError):
    """A model request failed; `code` is stable and may be shown, the text is for the log.

    `retry_after` is in seconds, as the provider asked for it, or None. `usage` is the `Usage` that the request has cost
    all the same, where the provider told it; None where it did not, or nothing was used.
    """

    code = "model_failed"

    def __init__(
        self,
        message: str,
        *,
        code: str = "model_failed",
        retryable: bool = True,
        retry_after: float | None = None,
        usage: Any = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after = retry_after
        self.usage = usage  # a `Usage`, which this lowest module does not know


class ValueNotStorable(AmoxiError):
    """A value cannot be stored and come back the same."""

    code = "value_not_storable"


class ArgumentsInvalid(AmoxiError):
    """The arguments of a call do not fit its tool; `errors` is `(field, reason)` for each."""

    code = "arguments_invalid"

    def __init__(self, errors: tuple[tuple[str, str], ...]) -> None:
        self.errors = errors
        super().__init__("; ".join(f"{field}: {reason}" if field else reason for field, reason in errors))


class ToolError(AmoxiError):
    """Raise it in a tool to tell the model, in your words, what went wrong."""

    code = "tool_error"


class StepError(AmoxiError):
    """A step ended with an error, now or before a crash; `type_name` and `text` are what it raised.

    `for_model` says that it was a `ToolError`: a tool that lets it go tells the model its text.
    """

    code = "step_failed"

    def __init__(self, name: str, type_name: str, text: str, *, for_model: bool = False) -> None:
        super().__init__(f"step {name!r} failed: {type_name}: {text}" if text else f"step {name!r} failed: {type_name}")
        self.name = name
        self.type_name = type_name
        self.text = text
        self.for_model = for_model
