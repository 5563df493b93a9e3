"""Which runs are left to servers that have another version of the app, because their code is not in this one."""

from __future__ import annotations

from msgspec import Struct

from amoxi_py.declare.definitions import Catalog
from amoxi_py.domain.direct import direct_tool
from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.run import RunRows
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.engine.calls import read_arguments
from amoxi_py.engine.children import waits_for_child
from amoxi_py.errors import ArgumentsInvalid

_SHORTEST_REST = 1.0
_LONGEST_REST = 20.0
_REST_SHARE = 0.1


class Leaving(Struct, frozen=True):
    """A run that is left to others: why, and for how many seconds nobody claims it."""

    reason: str
    rest: float


class Versions:
    """Tells a run whose code is gone from one whose code is not here yet.

    What was stored before this process began is of a version that this one replaced, so what it needs and is not here
    is gone. What was stored later is the work of a process beside this one that has the code: it is left to such
    processes, until none has taken it for `patience` seconds.

    Args:
        catalog: What this process has.
        began: When it began, by the store's clock.
        patience: Seconds.
    """

    def __init__(self, catalog: Catalog, began: float, patience: float) -> None:
        self._catalog = catalog
        self._began = began
        self._patience = patience
        self._left: dict[str, float] = {}

    def leaving(self, rows: RunRows, now: float) -> Leaving | None:
        """Return how a run that was claimed is left to others, or None when it is executed here.

        `now` is of a clock that only runs.
        """
        found = self._missing(rows)
        if found is None or found[1] <= self._began:
            return None
        run_id = rows.lease.run_id
        since = self._left.get(run_id)
        if since is None:
            self._left = {one: at for one, at in self._left.items() if now - at < 2 * self._patience}
            self._left[run_id] = now
            return Leaving(found[0], 0.0)
        waited = now - since
        if waited >= self._patience:
            del self._left[run_id]
            return None
        rest = min(max(waited * _REST_SHARE, _SHORTEST_REST), _LONGEST_REST)
        return Leaving(found[0], rest)

    def _missing(self, rows: RunRows) -> tuple[str, float] | None:
        """Return what is not here of what the run needs now, and when that was stored."""
        agent, direct = self._catalog.of_run(rows.agent), direct_tool(rows.agent)
        if agent is None:
            named = f"agent {rows.agent!r}" if direct is None else f"tool {direct!r}"
            return f"there is no {named} here", rows.messages[0].created_at
        last = rows.messages[-1]
        if direct is not None and last.role == "user":  # its call is not made yet, and the message is its arguments
            wanted = [(direct, last.text)]
        else:
            wanted = [(call.tool, call.effective_arguments) for call in last.calls if _needs_code(call)]
        for name, arguments in wanted:
            tool = agent.tool(name)
            if tool is None:
                return f"there is no tool {name!r} here", last.created_at
            try:
                read_arguments(tool, decode_json(arguments))
            except ArgumentsInvalid:
                return f"the tool {name!r} does not take its arguments here", last.created_at
        return None


def _needs_code(call: ToolCall) -> bool:
    if call.status is CallStatus.OPEN:
        return call.approval is None or call.approval.decision == "approve"
    return call.status is CallStatus.STARTED and not waits_for_child(call)
