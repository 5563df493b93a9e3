"""What the MCP surface is told: who may call, and its limits. It holds digests of tokens, never tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """Times are in seconds, sizes in bytes.

    Attributes:
        name: The app's.
        version: Told to clients.
        callers: By a caller's name, the digests (SHA-256) of its tokens; the caller is `mcp:<name>`.
        prefix: Comes before every path, such as `/ai`; empty for none.
        public_url: Where people find this server, when a proxy is in front of it.
        cors_origins: Foreign pages that may call.
        answer_within: After that long a call of `ask_<agent>` answers with the run's id, whatever the run does.
        task_after: After that long a call whose client takes tasks is answered with one.
        heartbeat: The longest silence of a call whose client wants to hear of its progress.
        stop_grace: How long a stop of the server may take.
        linger: How long a request may still wait for its run after the server has begun to stop.
        marked_after: When a client is told from where it can go on with the answer, should that be cut off.
        retry_after: How long it waits then before it comes back.
        remembered_after: When it is noted, for the other servers, which run a request has started.
        max_body: The longest body of a request.
    """

    name: str
    version: str
    callers: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict, repr=False)
    prefix: str = ""
    public_url: str | None = None
    cors_origins: tuple[str, ...] = ()
    answer_within: float = 45.0
    task_after: float = 0.75
    heartbeat: float = 10.0
    stop_grace: float = 20.0
    linger: float = 2.0
    marked_after: float = 0.05
    retry_after: float = 2.0
    remembered_after: float = 0.25
    max_body: int = 4 << 20

    @property
    def linger_of_runs(self) -> float:
        """How long a request of a run lingers: the run goes on without it, so it ends well before the stop does."""
        return min(self.linger, self.stop_grace / 2)

    @property
    def linger_at_once(self) -> float:
        """How long a call without a run lingers: nobody else goes on with it, so it has nearly all of the stop."""
        return max(self.stop_grace - 1.0, self.stop_grace / 2)
