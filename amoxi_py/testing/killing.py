"""A store that ends its own process at one of its calls, as a power cut would; otherwise it is the store behind it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, cast

from amoxi_py.ports.changes import Change
from amoxi_py.ports.inputs import Signal, Verdict
from amoxi_py.ports.store import Store
from amoxi_py.ports.transactions import StepPlace

When = Literal["before", "after"]

CHECKPOINTS = frozenset(
    {
        "answer",
        "cancel",
        "clear_space",
        "commit_step",
        "decide",
        "delete_file",
        "drop_webhook",
        "erase",
        "forget_passage",
        "forget_passages",
        "forget_principal",
        "forget_records",
        "keep_passages",
        "keep_record",
        "keep_webhook",
        "note_delivery",
        "pause",
        "purge",
        "put_off_webhook",
        "release",
        "replace_source",
        "save_file",
        "signal",
        "submit",
        "take_record",
        "write",
    }
)
"""The verbs of the store that change what is known of a run. The others look, or keep the worker's own lease."""

LOOKS = frozenset(
    {
        "arrivals",
        "asking_before",
        "behind",
        "busy_runs",
        "delivery",
        "files_of_run",
        "find_files",
        "find_log",
        "find_record",
        "find_records",
        "find_webhook",
        "get_call",
        "get_file",
        "get_run",
        "history",
        "kept_files",
        "kept_runs",
        "knows_key",
        "list_approvals",
        "list_conversations",
        "list_passages",
        "list_runs",
        "list_tasks",
        "list_webhooks",
        "load",
        "made_decisions",
        "read_conversation",
        "read_file",
        "read_log",
        "run_messages",
        "search_passages",
        "sources",
        "tenants_with",
        "unembedded",
        "usages",
    }
)
"""The verbs that change nothing: a kill after one finds what a kill before it does."""


class Killer:
    """Counts the calls of the stores that it wraps, and ends this process before or after one of them.

    Args:
        at: Which call, from 1; 0 for none.
        when: Before the store has it, or after it is committed and before anybody is told.
        verbs: Which calls count; None for all.
        on_kill: Told which call it is, such as `write (step 'refund')`, right before the end.

    Attributes:
        counted: The calls that counted, as `on_kill` is told.
        verbs_called: How often each verb of the port was called.
    """

    def __init__(
        self,
        at: int = 0,
        when: When = "before",
        *,
        verbs: frozenset[str] | None = CHECKPOINTS,
        on_kill: Callable[[str], None] = lambda what: None,
    ) -> None:
        self.counted: list[str] = []
        self.verbs_called: Counter[str] = Counter()
        self._at = at
        self._when = when
        self._verbs = verbs
        self._on_kill = on_kill
        self._lock = threading.Lock()

    def wrap(self, store: Store) -> Store:
        """Return the store with this before it."""
        return cast(Store, _KillingStore(store, self))

    def arrive(self, verb: str, arguments: tuple[Any, ...]) -> bool:
        """Count a call; return whether it is the one after which the process ends."""
        with self._lock:
            self.verbs_called[verb] += 1
            if self._verbs is not None and verb not in self._verbs:
                return False
            self.counted.append(describe(verb, arguments))
            mine = len(self.counted) == self._at
        if mine:
            self._on_kill(self.counted[-1])
        if mine and self._when == "before":
            die()
        return mine


class _KillingStore:
    def __init__(self, store: Store, killer: Killer) -> None:
        self._store = store
        self._killer = killer

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._store, verb)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            last = self._killer.arrive(verb, args)
            answer = method(*args, **kwargs)
            return _die_after(answer) if last else answer

        return call


def describe(verb: str, arguments: tuple[Any, ...]) -> str:
    """Say what a call of the store is about."""
    subject = arguments[0] if arguments else None
    parts: list[str] = []
    if isinstance(subject, Change):
        if subject.message is not None:
            calls = ", ".join(call.tool for call in subject.message.calls)
            parts.append(f"the model's reply, which calls {calls}" if calls else "the model's reply")
        parts += [f"the step {step.record.name!r}" for step in subject.steps]
        parts += [f"the wait {new.wait.k} of call {new.turn}.{new.n}" for new in subject.waits]
        parts += [f"the start of call {turn}.{n}" for turn, n in (*subject.starts, *subject.retries)]
        parts += [f"the result of call {one.turn}.{one.n}" for one in subject.results]
        parts += [f"the end, {subject.end}"] if subject.end is not None else []
    elif isinstance(subject, Verdict):
        parts.append(subject.decision)
    elif isinstance(subject, Signal):
        parts.append(subject.name)
    elif isinstance(subject, StepPlace):
        parts.append(f"the step {subject.name!r}")
    return f"{verb} ({', '.join(parts)})" if parts else verb


def die() -> None:
    """End this process now; nothing is cleaned up."""
    if sys.platform == "win32":
        os.kill(os.getpid(), 9)  # TerminateProcess
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def _die_after(answer: Any) -> Any:
    if asyncio.iscoroutine(answer):

        async def last() -> None:
            await answer
            die()

        return last()
    if isinstance(answer, asyncio.Future):
        answer.add_done_callback(lambda _done: die())
        return answer
    die()
    return answer
