"""A process that works a script to its end and kills itself at one call of the store's port.

    program.py FOLDER count             work to the end; write how often each verb was called
    program.py FOLDER before|after N    die by SIGKILL before or after the N-th call
    program.py FOLDER finish            work to the end, as the next process after a crash
    program.py FOLDER trials A B STEP   the last two, for each N from A to B, each in a folder of its own

The script: a run with parallel calls of every effect, steps and two approvals; a second run in the same conversation;
a run that is cancelled; a conversation that is erased; and every read. Each part has its idempotency key, so that the
next process goes on where the last one died.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from crash_app import Ledger, ShopAgent, ShopTools
from evidence import effects, recorded_steps

from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import Conflict, NotFound
from amoxi_py.models.script import call
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.stores.sqlite.store import SqliteStore

ANA = Principal(id="user:ana", channel="code")
SCRIPT = {
    "everything": [
        [
            call("lookup", order="A-1"),
            call("refund", order="A-1"),
            call("charge", order="A-1"),
            call("ship", order="A-1"),
        ],
        [call("cancel_order", order="A-2"), call("cancel_order", order="A-3"), call("lookup", order="A-2")],
        "All is done.",
    ],
    "go on": [call("refund", order="A-4"), "Refunded."],
    "wait": [call("cancel_order", order="A-9"), "never said"],
    "hang": [call("hang", order="A-9"), "never said"],
    "forget me": ["Hello."],
}


class KillingStore:
    """Forwards to a store; counts its calls, and ends the process, without any clean-up, at one of them."""

    def __init__(self, store: SqliteStore, at: int, when: str) -> None:
        self.calls: Counter[str] = Counter()
        self.renewed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._store, self._at, self._when = store, at, when

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._store, verb)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[verb] += 1
            mine = self.calls.total() == self._at
            if mine and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = method(*args, **kwargs)
            if verb == "renew":
                self._loop.call_soon_threadsafe(self.renewed.set)
            if not mine or self._when != "after":
                return answer
            return self._die_after(answer)

        return call

    def _die_after(self, answer: Any) -> Any:
        if asyncio.iscoroutine(answer):

            async def die() -> None:
                await answer
                os.kill(os.getpid(), signal.SIGKILL)

            return die()
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda _done: os.kill(os.getpid(), signal.SIGKILL))
            return answer
        os.kill(os.getpid(), signal.SIGKILL)
        return answer


class OneModel:
    """The same model for every agent."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    def model_for(self, agent: object, ctx: object) -> ScriptedModel:
        return self.model


async def work(folder: Path, at: int, when: str) -> Counter[str]:
    declarations = build_declarations([ShopTools, ShopAgent], provided=[Ledger])
    store = KillingStore(SqliteStore(folder), at, when)
    model = ScriptedModel(SCRIPT)
    async with open_instances(declarations.singletons, {Ledger: Ledger(folder)}) as instances:
        engine = Engine(
            store=store,  # type: ignore[arg-type]
            catalog=declarations.catalog,
            instances=instances,
            models=OneModel(model),
            settings=EngineSettings(lease=0.6, poll=0.05),
        )
        await engine.start()
        await store.secret("cookie", "s" * 32)
        await everything(engine)
        await engine.ready()
        await asyncio.wait_for(store.renewed.wait(), 10)
        await engine.stop(grace=5.0)
    (folder / "refused.json").write_text(json.dumps(model.refused), encoding="utf-8")
    return store.calls


async def everything(engine: Engine) -> None:
    first = await engine.submit("shop-agent", "everything", principal=ANA, idempotency_key="k-first")
    first_run = await until_ended(engine, first.run, {"A-2": "approve", "A-3": "decline"})
    assert first_run.status == "completed", first_run
    conversation = first.run.conversation_id
    second = await engine.submit(
        "shop-agent", "go on", principal=ANA, conversation_id=conversation, idempotency_key="k-second"
    )
    second_run = await until_ended(engine, second.run, {})
    assert second_run.status == "completed", second_run
    third = await engine.submit("shop-agent", "wait", principal=ANA, idempotency_key="k-third")
    await follow(engine, third.run.id, lambda event: event.type is EventType.APPROVAL_REQUESTED)
    await cancel(engine, third.run)
    fourth = await engine.submit("shop-agent", "hang", principal=ANA, idempotency_key="k-fourth")
    await follow(engine, fourth.run.id, lambda event: event.type is EventType.TOOL_CALLED)
    await cancel(engine, fourth.run)
    await forget(engine)
    await read_all(engine, conversation)


async def cancel(engine: Engine, run: Run) -> None:
    cancelled = await engine.cancel(run.id, ANA)
    assert cancelled.status == "cancelled", cancelled


async def forget(engine: Engine) -> None:
    try:
        last = await engine.submit("shop-agent", "forget me", principal=ANA, idempotency_key="k-last")
        await until_ended(engine, last.run, {})
        await engine.erase(last.run.conversation_id, ANA)
    except (NotFound, Conflict):  # erased before the crash: the key outlives the conversation
        pass


async def read_all(engine: Engine, conversation: str) -> None:
    await engine.list_runs(ANA)
    await engine.list_conversations(ANA)
    await engine.read_conversation(conversation, ANA)


async def follow(engine: Engine, run_id: str, until: Callable[[Event], bool]) -> None:
    """Read a run's events until one fits, or the run has ended."""
    async with asyncio.timeout(30):
        async for events in await engine.follow(ANA, run_id=run_id):
            if any(map(until, events)):
                return


async def until_ended(engine: Engine, run: Run, decisions: dict[str, str]) -> Run:
    """Follow a run to its end, deciding by order number what it asks."""
    async with asyncio.timeout(30):
        async for events in await engine.follow(ANA, run_id=run.id):
            for event in events:
                if event.type is EventType.APPROVAL_REQUESTED:
                    await decide(engine, event.data["call_id"], decisions[event.data["arguments"]["order"]])
    return await engine.get_run(run.id, ANA)


async def decide(engine: Engine, call_id: str, decision: Any) -> None:
    await engine.decide(call_id, ANA, decision)


def main(folder: Path, when: str, at: int) -> None:
    calls = asyncio.run(work(folder, at, when))
    (folder / "calls.json").write_text(json.dumps(calls), encoding="utf-8")


def trials(top: Path, first: int, last: int, every: int) -> None:
    """Kill at each of these calls, before and after, and let a second process finish; a fork spares the imports."""
    for at in range(first, last + 1, every):
        for when in ("before", "after"):
            folder = top / f"trial-{at:03}-{when}"
            folder.mkdir()
            killed = in_child(folder / "kill.log", partial(main, folder, when, at))
            steps, done = recorded_steps(folder), effects(folder)
            finished = in_child(folder / "finish.log", partial(main, folder, "finish", 0))
            trial = {
                "killed": killed,
                "finished": finished,
                "steps": sorted(steps),
                "before": [[call, what, count] for (call, what), count in done.items()],
                "after": [[call, what, count] for (call, what), count in effects(folder).items()],
            }
            (folder / "trial.json").write_text(json.dumps(trial), encoding="utf-8")


def in_child(log: Path, work: Callable[[], None]) -> int:
    """Do something in a fork of this process; return 0, or a positive exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            out = os.open(log, os.O_CREAT | os.O_WRONLY)
            os.dup2(out, 1)
            os.dup2(out, 2)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    if sys.argv[2] == "trials":
        trials(Path(sys.argv[1]), *map(int, sys.argv[3:]))
    else:
        main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
