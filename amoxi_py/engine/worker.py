"""Claims runs and executes them, many at once, under one lease of this process; hands them over when it stops."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease, RunRows
from amoxi_py.engine.direct_execution import execution_of
from amoxi_py.engine.execution import RunExecution
from amoxi_py.engine.lease import LeaseKeeper
from amoxi_py.engine.parts import Parts
from amoxi_py.engine.threads import all_done
from amoxi_py.engine.versions import Leaving, Versions
from amoxi_py.errors import LeaseLost, StoreUnavailable
from amoxi_py.ports.store import WorkerKey

log = logging.getLogger("amoxi_py.worker")

_MOST_AT_ONCE = 100
_LAST_MOMENTS = 1.0
_INTERRUPTS = 3
_LOOK_AGAIN = 0.05
_CUT_OFF = 0.2
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Worker:
    """The part of a process that executes runs.

    `on_enrolled` is told the id that it has in the store, before anything is claimed under it; a new one after a lease
    was lost.
    """

    def __init__(self, parts: Parts, on_enrolled: Callable[[str], None] = lambda worker_id: None) -> None:
        self._parts = parts
        self._on_enrolled = on_enrolled
        self._keeper: LeaseKeeper | None = None
        self._claims = 0
        self._own: set[str] = set()
        self._reserved = 0
        self._active: dict[asyncio.Task[None], RunExecution] = {}
        self._by_id: dict[str, RunExecution] = {}
        self._releases: dict[asyncio.Task[None], RunExecution] = {}
        self._outlasting: dict[asyncio.Task[None], RunExecution] = {}  # runs that are over, but for code of theirs
        self._versions = Versions(parts.catalog, parts.clock.now(), parts.settings.other_versions)
        self._leaving: set[asyncio.Task[None]] = set()
        self._due = asyncio.Event()
        self._stopping = False
        self._grace_over = False
        self._claiming: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Enroll, and begin to claim."""
        await self._enroll()
        self._parts.hub.on_due = self._due.set
        self._claiming = asyncio.get_running_loop().create_task(self._claim_for_ever())

    def reserve(self) -> WorkerKey | None:
        """Keep a place for a run that is about to be submitted; None when there is no free one."""
        keeper = self._keeper
        if self._stopping or keeper is None or not keeper.current or self._free() <= 0:
            return None
        self._reserved += 1
        return keeper.worker

    def take_up(self, conversation_id: str, run_id: str | None = None) -> None:
        """Look now for what is due; execute this run, or those of this conversation too, where not all are executed."""
        self.adopt(conversation_id, run_id)
        self._due.set()

    def adopt(self, conversation_id: str, run_id: str | None = None) -> None:
        """Execute this run, or those of this conversation, too, where not all are executed."""
        executes = self._parts.settings.executes
        own = conversation_id if executes == "own_conversations" else run_id
        if executes != "all" and own is not None:
            self._own.add(own)

    def unreserve(self) -> None:
        """Give the place back."""
        self._reserved -= 1
        self._tell_of_place()

    def begin(
        self,
        rows: RunRows,
        history: tuple[Message, ...] | None = None,
        *,
        new: bool = False,
        values: dict[str, Any] | None = None,
    ) -> None:
        """Execute a run that was claimed for this worker; `history` spares a read when it is known.

        A `new` one was claimed by its submission: no code of it has run anywhere, and all that it needs is here.
        `values` are the arguments of the call that it was submitted with, as the tool's Python values.
        """
        keeper = self._keeper
        if keeper is None or keeper.worker.key != rows.lease.worker:
            return  # claimed under a lease that was lost meanwhile: whoever takes it over goes on
        leaving = None if new else self._versions.leaving(rows, asyncio.get_running_loop().time())
        if leaving is not None:
            self._leave_to_others(rows.lease, leaving)
            return
        execution = execution_of(self._parts, keeper, rows, history, new=new, values=values)
        task = execution.start()
        self._active[task] = execution
        self._by_id[rows.lease.run_id] = execution
        task.add_done_callback(self._ended)
        if self._grace_over or (self._stopping and execution.repeats_at_no_cost):
            execution.interrupt()

    def find(self, run_id: str, principal: Principal, agent: str | None) -> RunExecution | None:
        """Return the execution of a run of this principal (and agent, when given), if it is here."""
        execution = self._by_id.get(run_id)
        return execution if execution is not None and execution.is_of(principal, agent) else None

    @property
    def executing(self) -> int:
        """How many runs are executed here."""
        return len(self._active)

    @property
    def problem(self) -> str | None:
        """Why nothing is executed here now, or None."""
        if self._claiming is None or self._claiming.done():
            return "it has not begun, or has ended"
        if self._keeper is None:
            return "its lease was lost, and it has not got another one yet"
        return None if self._keeper.current else "its lease could not be renewed in time"

    @property
    def keeper(self) -> LeaseKeeper | None:
        """This worker's lease, or None while it has none."""
        return self._keeper

    async def stop(self, grace: float, *, hurry: bool = False, meanwhile: asyncio.Future[None] | None = None) -> None:
        """Claim nothing more, let runs end within `grace` seconds, and hand over what is left, at once.

        In a hurry only what cannot be cut off without a cost gets the grace; all else is handed over before. The lease
        is kept until `meanwhile` is done: something else that needs it and ends within the grace. Code that was told to
        stop before gets the grace too, and is cut off then: what it uses is closed after this.
        """
        try:
            await self._leave(grace, hurry=hurry, meanwhile=meanwhile)
        finally:
            await self._cut_off()

    async def _leave(self, grace: float, *, hurry: bool, meanwhile: asyncio.Future[None] | None) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + grace
        self._stopping = True
        self._parts.hub.on_due = lambda: None
        self._due.set()
        for task in (self._claiming, self._returning):
            if task is not None:
                await asyncio.wait((task,), timeout=_LAST_MOMENTS)  # a claim that is under way must not be lost
                task.cancel()
                await asyncio.wait((task,), timeout=_LAST_MOMENTS)
        await self._come_to_rest(grace, hurry=hurry)
        self._grace_over = True
        await self._interrupt_all()
        deadline = max(deadline, clock() + _LAST_MOMENTS)
        if self._releases:
            await asyncio.wait(self._releases, timeout=deadline - clock())
        if meanwhile is not None:
            await asyncio.wait((meanwhile,), timeout=grace + _LAST_MOMENTS + _CUT_OFF)
        if self._keeper is not None:
            self._keeper.stop()
            await self._retire(self._keeper.worker)
        while (ending := {*self._outlasting, *self._parts.threads.left_behind}) and (left := deadline - clock()) > 0:
            await asyncio.wait(ending, timeout=left)

    async def _cut_off(self) -> None:
        """End code that has not ended though it was told to stop; threads cannot be ended."""
        executions = [*self._active.values(), *self._outlasting.values(), *self._releases.values()]
        code = {one for execution in executions for one in execution.lingering if isinstance(one, asyncio.Task)}
        code.update(self._active)
        if code or self._parts.threads.left_behind:
            log.warning("code that was told to stop has not ended in time; what it uses is closed all the same")
        for task in code:
            task.cancel()
        if code:
            await asyncio.wait((*code, *self._releases), timeout=_CUT_OFF)

    async def _come_to_rest(self, grace: float, *, hurry: bool) -> None:
        """Let runs end for at most `grace` seconds, those too that are being submitted: their calls may have started.

        In a hurry each is interrupted as soon as that costs nothing.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + grace
        while (self._active or self._reserved) and (left := deadline - clock()) > 0:
            for execution in self._active.values() if hurry else ():
                if execution.repeats_at_no_cost:
                    execution.interrupt()
            pause = min(left, _LOOK_AGAIN) if hurry or self._reserved else left
            when = asyncio.FIRST_COMPLETED if hurry else asyncio.ALL_COMPLETED
            if self._active:
                await asyncio.wait(self._active, timeout=pause, return_when=when)
            else:
                await asyncio.sleep(pause)

    async def _retire(self, worker: WorkerKey) -> None:
        if self._releases:  # nobody may begin a run whose code goes on here, in a thread that cannot be ended
            log.warning("%d runs have code that does not end; they go on after this process", len(self._releases))
            return
        try:
            await self._parts.store.retire(worker)
        except StoreUnavailable as error:
            log.warning("the store is away, so the runs of this worker wait for its lease to expire: %s", error)

    def _free(self) -> int:
        return self._parts.settings.concurrency - len(self._active) - self._reserved

    def _tell_of_place(self) -> None:
        if self._free() == 1:
            self._due.set()  # the last place was taken until now, so more may be waiting

    async def _enroll(self) -> None:
        sent = self._parts.clock.running()
        lease = self._parts.settings.lease
        worker = await self._parts.store.enroll(new_id("worker"), lease)
        self._on_enrolled(worker.id)
        self._claims = 0
        self._keeper = LeaseKeeper(self._parts.store, self._parts.clock, lease, worker, sent)
        self._keeper.start(self._lost)

    def _lost(self) -> None:
        self._parts.measures.leases_lost += 1
        log.warning("this worker's lease was lost; its runs are dropped here and go on elsewhere")
        self._returning = asyncio.get_running_loop().create_task(self._come_back())

    async def _come_back(self) -> None:
        lost, self._keeper = self._keeper, None
        if lost is not None:
            lost.stop()
        lingering = await self._interrupt_all()
        if lingering:  # what cannot be ended gets a while, and then only its writes are kept out
            await asyncio.wait(lingering, timeout=self._parts.settings.lease)
        while not self._stopping:
            try:
                await self._enroll()
            except StoreUnavailable:
                await asyncio.sleep(self._parts.settings.poll)
            else:
                self._due.set()
                return

    async def _interrupt_all(self) -> set[asyncio.Future[Any]]:
        """End all runs here, and leave behind what does not let itself be ended: return that."""
        executions = list(self._active.values())
        for again in range(_INTERRUPTS):
            for execution in self._active.values():
                if not again or not execution.lingering:  # what waits for a thread would be closed under it
                    execution.interrupt()
            if not self._active:
                break
            await asyncio.wait(self._active, timeout=_LAST_MOMENTS)
        for task, execution in list(self._active.items()):
            log.error("run %s holds on to this process though it was interrupted", execution.lease.run_id)
            execution.lingering.add(task)
            task.add_done_callback(execution.lingering.discard)
        return {future for execution in executions for future in execution.lingering}

    # -- claiming

    async def _claim_for_ever(self) -> None:
        away = False
        while not self._stopping:
            try:
                await self._claim()
                away = False
            except StoreUnavailable as error:
                log.log(logging.DEBUG if away else logging.WARNING, "claiming has to wait: %s", error)
                away = True
            except LeaseLost:
                pass  # the keeper finds out by itself and comes back under a new id
            except Exception:
                log.exception("claiming failed; it is tried again")
                await asyncio.sleep(self._parts.settings.poll)
            # Those who are told at the same moment look at different ones after it, so that each is the first at times.
            chance = random.uniform(0.75, 1.25)  # noqa: S311
            try:
                await asyncio.wait_for(self._due.wait(), self._parts.settings.poll * chance)
            except TimeoutError:
                pass

    async def _claim(self) -> None:
        while not self._stopping:
            self._due.clear()
            keeper, limit = self._keeper, min(self._free(), _MOST_AT_ONCE)
            if keeper is None or not keeper.current or limit <= 0:
                return
            executes = self._parts.settings.executes
            own = tuple(self._own)
            if executes != "all" and not own:
                return
            claimed = await self._parts.store.claim(
                keeper.worker,
                self._claims + 1,
                limit,
                conversations=own if executes == "own_conversations" else None,
                runs=own if executes == "own_runs" else None,
            )
            if keeper is self._keeper:
                self._claims += 1
            for rows in claimed:
                if rows.lease.fence > 1:
                    self._parts.measures.resumed["crash" if rows.crashes else "pause"] += 1
                self.begin(rows)
            if len(claimed) < limit:
                return

    # -- ends

    def _ended(self, task: asyncio.Task[None]) -> None:
        execution = self._active.pop(task)
        if self._by_id.get(execution.lease.run_id) is execution:
            del self._by_id[execution.lease.run_id]
        self._tell_of_place()
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None:
            crashed = failure is not None and not isinstance(failure, LeaseLost)
            if crashed:
                log.error("run %s stopped by an error", execution.lease.run_id, exc_info=failure)
            release = task.get_loop().create_task(self._release(execution, crashed=crashed))
            _keep(self._releases, release, execution)
        elif execution.lingering:
            _keep(self._outlasting, task.get_loop().create_task(all_done(execution.lingering)), execution)

    async def _release(self, execution: RunExecution, *, crashed: bool) -> None:
        """Give a run away once none of its code runs here: before that, somebody else must not begin.

        One that an error of the server stopped counts as crashed, so that it cannot go round for ever.
        """
        await all_done(execution.lingering)
        await self._let_go(execution.lease, crashed=crashed)
        self._due.set()

    def _leave_to_others(self, lease: Lease, leaving: Leaving) -> None:
        log.warning("run %s is left to a server of another version: %s", lease.run_id, leaving.reason)
        task = asyncio.get_running_loop().create_task(self._let_go(lease, rest=leaving.rest))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _let_go(self, lease: Lease, *, crashed: bool = False, rest: float = 0.0) -> None:
        """Release a run, again and again while the store is away: nobody takes one up whose worker is alive."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._parts.store.release(lease, crashed=crashed, rest=rest)
                return
            except StoreUnavailable as error:
                if self._stopping or self._keeper is None or self._keeper.worker.key != lease.worker:
                    log.warning("run %s could not be handed over: %s", lease.run_id, error)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _keep(ending: dict[asyncio.Task[None], RunExecution], task: asyncio.Task[None], execution: RunExecution) -> None:
    """Hold on to a task until it ends."""
    ending[task] = execution
    task.add_done_callback(ending.pop)
