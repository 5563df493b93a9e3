"""Approvers that are functions: they are shown who wants to decide and what about, and answer yes or no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amoxi_py.declare.asked_function import AskedFunction, read_asked_function
from amoxi_py.declare.hooks import hook_callee
from amoxi_py.declare.marks import LocalNames
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """An approval as `approver=` functions see it. Times are seconds since 1970 (UTC).

    Attributes:
        call_id: The call that is to be decided about.
        run_id: Its run.
        agent: The agent's name on the wire.
        tool: The tool's.
        arguments: What the model wants to call it with.
        requested_by: Whose run it is.
        created_at: When it was asked for.
        expires_at: When nobody can decide any more, or None.
    """

    call_id: str
    run_id: str
    agent: str
    tool: str
    arguments: Mapping[str, Any]
    requested_by: Principal
    created_at: float
    expires_at: float | None = None


def read_approver(
    approver: Any, owner: type[Any] | None, names: LocalNames, where: str, mistakes: Mistakes
) -> AskedFunction | None:
    """Return how an `approver=` function is asked, or None when it cannot be (and note why)."""
    callee = hook_callee("approver", approver, owner, where, mistakes)
    if callee is None:
        return None
    return read_asked_function(callee, "(principal, approval) -> bool", 2, "its `approver`", names, where, mistakes)
