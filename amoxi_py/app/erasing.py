"""The end of all that an app keeps of one principal: its programs' connections first, then what it has done."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from amoxi_py.app.oauth import grants_of
from amoxi_py.app.runtime import Runtime
from amoxi_py.domain.placing import placed_by_code
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.operator import Operator


class Erased(Struct, frozen=True, kw_only=True):
    """How much of a principal was deleted; all are 0 when nothing was kept.

    Attributes:
        conversations: With all messages, runs, calls and approvals in them; runs that were open were cancelled.
        files: Those that were not in these conversations alone.
        connections: What it had allowed programs by OAuth.
        idempotency_keys: Its keys.
        records: Small things of doors, such as which message by A2A came with which files.
        decisions: Those about runs of others, which stay, without its name.
        memories: What was remembered of it.
    """

    conversations: int
    files: int
    connections: int
    idempotency_keys: int
    records: int
    decisions: int
    memories: int

    @property
    def nothing(self) -> bool:
        """Whether nothing was kept."""
        return not any(getattr(self, name) for name in self.__struct_fields__)


async def erase_principal(
    operator: Operator, principal: Principal, *, on_conversation: Callable[[], None] = lambda: None
) -> Erased:
    """Delete all that is kept of a principal, and end what its runs do; `on_conversation` is called after each one."""
    connections = await grants_of(lambda: operator.store).end_all_of(principal)
    conversations, forgotten = await operator.erase(principal, on_conversation=on_conversation)
    return Erased(
        conversations=conversations,
        files=forgotten.files,
        connections=connections,
        idempotency_keys=forgotten.idempotency_keys,
        records=forgotten.records,
        decisions=forgotten.decisions,
        memories=forgotten.memories,
    )


async def erase_by_code(runtime: Runtime, principal: Principal) -> Erased:
    """Do so with a principal as the app's code names it; raise `InvalidRequest` when it cannot be one."""
    who = placed_by_code(principal)
    return await erase_principal(Operator(runtime.engine, runtime.store, who), who)
