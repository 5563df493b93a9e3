"""A person's decision about one call: asked once, decided once, for exactly the arguments that were shown."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from amoxi_py.domain.principal import Principal

Decision = Literal["approve", "decline", "expire"]
OWNER = "owner"
FUNCTION = "function"


class Approval(Struct, frozen=True, kw_only=True):
    """The approval of one call. Times are seconds since 1970 (UTC); `arguments` is edited JSON text or None.

    `approver` is `owner` (the run's principal), `role:<name>` or `function`; `decision` is None while it is open.
    """

    approver: str = OWNER
    created_at: float
    expires_at: float | None = None
    decision: Decision | None = None
    by: str | None = None
    reason: str | None = None
    arguments: str | None = None

    def expired(self, now: float) -> bool:
        """Whether nobody decided in time."""
        return self.decision is None and self.expires_at is not None and self.expires_at <= now


def may_decide(approval: Approval, principal: Principal, requested_by: Principal, *, allowed: bool) -> bool:
    """Whether a principal may decide about a call; `allowed` is what a function said that is the approver.

    Roles and functions count within the tenant of who asked.
    """
    if approval.approver == OWNER:
        return principal.owner_key == requested_by.owner_key
    if principal.tenant != requested_by.tenant:
        return False
    kind, _, role = approval.approver.partition(":")
    return role in principal.roles if kind == "role" else allowed
