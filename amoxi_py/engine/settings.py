"""What can be set about the engine, with the defaults of a production server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from amoxi_py.domain.limits import NO_LIMITS, Limits
from amoxi_py.domain.retry import RetryPolicy, patient_for
from amoxi_py.ports.store import OnBusy

McpApprovals = Literal["decline", "wait"]
"""`wait` lets them wait for somebody who can decide; calls for which there is nobody are declined all the same."""
Executes = Literal["all", "own_conversations", "own_runs"]
"""Which runs a process executes: all, those of conversations that were written to or taken up in it, or those that it
submitted; a run that an idempotency key finds again counts as submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Times are in seconds, sizes in bytes.

    Attributes:
        worker: Whether this process executes runs; False only serves.
        executes: Which runs, when it does.
        lease: How long a worker's claim lasts without renewal.
        concurrency: Runs at once in this process.
        parallel_calls: Calls of one reply at once.
        tool_threads: Threads for sync tools.
        max_attempts: Crashes of a run without a new checkpoint that end it.
        on_busy: What a second message does to a busy conversation, when the agent does not say.
        approvals_expire_after: None for never.
        mcp_approvals: What becomes of calls that need an approval in runs that were started by MCP.
        max_result: The longest result of a tool that a model is given; the rest is cut.
        max_message: The longest message of a person, in characters.
        max_file: The largest file.
        models_at_once: Requests to models at once in this process; 0 is no limit.
        model_retry: Tries of a model request, as long as the provider is away; what it answers badly has fewer.
        rate_limit_retry: The same when the provider says that it is asked too often, which passes in minutes.
        handler_retry: Tries of a handler of events.
        poll: How often a worker looks for due runs when nothing tells it to.
        transcripts_ttl: How long what was said in a conversation stays in memory after its last use; 0 for not at all.
        other_versions: How long a newer run, whose code is not here, is left to processes that may have it.
        limits: What is admitted; the store must have the same.
        memory_most: How many memories a principal may have.
        memory_days: Days after which a memory that was not written again is deleted; 0 for never.
        memory_at_start: How many memories stand in the instructions of an agent with memory, at the most.
        memory_poll: How often a worker looks for texts without a vector when nothing tells it to.
    """

    worker: bool = True
    executes: Executes = "all"
    lease: float = 30.0
    concurrency: int = 2000
    parallel_calls: int = 8
    tool_threads: int = 64
    max_attempts: int = 5
    on_busy: OnBusy = "replace"
    approvals_expire_after: float | None = None
    mcp_approvals: McpApprovals = "decline"
    max_result: int = 64 * 1024
    max_message: int = 200_000
    max_file: int = 25 * 1024 * 1024
    models_at_once: int = 0
    model_retry: RetryPolicy = field(default_factory=lambda: patient_for(300.0))
    rate_limit_retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(tries=40))
    handler_retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(tries=10, first=1.0, longest=300.0))
    poll: float = 0.5
    transcripts_ttl: float = 300.0
    other_versions: float = 300.0
    limits: Limits = NO_LIMITS
    memory_most: int = 1000
    memory_days: int = 0
    memory_at_start: int = 5
    memory_poll: float = 30.0
