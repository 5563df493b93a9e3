"""A cancel ends a run once and for all, at any moment and through any server, and leaves a history that goes on."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest
from amoxi_py.testing import Gate, broken, call, pause, reply

TERMINAL = ("run.completed", "run.failed", "run.cancelled")

SHOP = '''
import asyncio, time
from amoxi_py import SyncToolContext, ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def slow(n: int, ctx: ToolContext) -> str:
    """Take 200 ms."""
    note("start", ctx, at=time.time())
    try:
        await asyncio.sleep(0.2)
    except BaseException:
        note("stopped", ctx, signal=ctx.signal.cancelled)
        raise
    note("end", ctx)
    return f"slow {n}"


@tool(idempotent=True)
def slow_thread(n: int, ctx: SyncToolContext) -> str:
    """Take 200 ms of a thread."""
    note("start", ctx, at=time.time())
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        if ctx.signal.cancelled:
            note("stopped", ctx, signal=True)
            ctx.signal.raise_if_cancelled()
        time.sleep(0.002)
    note("end", ctx)
    return f"slow {n}"


@tool(read_only=True)
async def first(ctx: ToolContext) -> str:
    """Give a result at once."""
    note("first", ctx)
    return "the first result"


@tool(idempotent=True)
async def second(ctx: ToolContext) -> str:
    """Wait for a gate."""
    note("second", ctx)
    await gate(ctx.conversation_id)
    return "the second result"


@tool
async def charge(ctx: ToolContext) -> str:
    """Wait for a gate; nobody may do that twice."""
    note("charge", ctx)
    await gate(ctx.conversation_id)
    return "charged"


@tool(read_only=True)
async def third(ctx: ToolContext) -> str:
    """Never reached."""
    note("third", ctx)
    return "the third result"


@agent(tools=[slow, slow_thread, first, second, charge, third])
class Shop:
    """You run a shop."""
'''


# O06
@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
@pytest.mark.parametrize("through", ["the executing server", "the other server"])
def test_cancels_at_random_moments_end_each_run_once_and_nothing_starts_after_them(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    last_words: Any,
    at_once: Any,
    trials: Any,
    store_kind: str,
    through: str,
) -> None:
    asked: list[tuple[str, float]] = []

    def script(request: ModelRequest) -> Any:
        text, said = last_words(request)
        asked.append((text, time.time()))
        if text.startswith("again"):
            return "I am here."
        if said == 0:
            n = int(text.split()[1])
            return call("slow" if n % 2 else "slow_thread", n=n)
        return reply("It ", pause(0.05), "is ", pause(0.05), "done.")

    model = strict_model(script)
    folder = field_app(SHOP)
    executing = start(folder, env=model_env(model))
    other = start(folder, env=model_env(model))
    chance = random.Random(6)
    count = trials(60 if store_kind == "file" else 30)
    delays = [chance.uniform(0.0, 0.6) for _ in range(count)]
    local = threading.local()

    def trial(n: int) -> dict[str, Any]:
        if not hasattr(local, "clients"):
            local.clients = client(executing), client(other)
        api, remote = local.clients
        run = api.submit("shop", f"work {n}")
        if n % 10 == 9:
            remote.until_status(run["id"])  # too late
        threading.Event().wait(delays[n])  # the random moment
        door = api if through == "the executing server" else remote
        answers = at_once(lambda: door.cancel(run["id"]), lambda: door.cancel(run["id"])) if n % 4 == 0 else []
        answers = answers or [door.cancel(run["id"])]
        accepted = time.time()
        again = api.submit("shop", f"again {n}", conversation_id=run["conversation_id"], wait=30)
        return {"n": n, "run": run["id"], "answers": answers, "accepted": accepted, "again": again}

    with ThreadPoolExecutor(12) as threads:
        done = list(threads.map(trial, range(count)))

    api = client(executing)
    ended = {"cancelled": 0, "completed": 0}
    for one in done:
        final = api.run(one["run"])
        [status] = {answer["status"] for answer in one["answers"]}
        assert final["status"] == status
        ended[status] += 1
        types = [event.type for event in api.events(one["run"])]
        assert [kind for kind in types if kind in TERMINAL] == [f"run.{status}"]
        assert types[-1] == f"run.{status}"
        assert one["again"]["status"] == "completed"
        starts = folder.ledger("start", run=one["run"])
        requests = [at for text, at in asked if text == f"work {one['n']}"]
        assert len(starts) <= 1
        assert len(requests) <= 2
        if status == "cancelled":
            latest = one["accepted"] + 1.0
            assert all(line["at"] < latest for line in starts)
            assert all(at < latest for at in requests)
            if starts and not folder.ledger("end", run=one["run"]):
                assert [line["signal"] for line in folder.ledger("stopped", run=one["run"])] == [True]
        else:
            assert len(folder.ledger("end", run=one["run"])) == 1
    assert min(ended.values()) > 0, f"the moments must fall before and after the end: {ended}"
    assert folder.ledger("stopped"), "some must fall into a tool"


# O06
@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_a_cancelled_run_that_waits_for_a_free_worker_never_starts(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    until: Any,
    last_words: Any,
    at_once: Any,
) -> None:
    model = strict_model({"block": [call("second"), "Done."], "next": ["Next."], "*": [call("first"), "Done."]})
    folder = field_app(SHOP)
    env = {**model_env(model), "AI_RUNS_CONCURRENCY": "1"}
    server = start(folder, env=env)
    other = start(folder, env={**model_env(model), "AI_RUNS_WORKER": "false"})
    api, remote = client(server), client(other)
    blocker = api.submit("shop", "block")
    until(lambda: folder.ledger("second"))
    queued = [api.submit("shop", f"queued {n}") for n in range(20)]
    for n, run in enumerate(queued[:10]):
        assert (api if n % 2 else remote).cancel(run["id"])["status"] == "cancelled"

    def free_the_place() -> None:
        folder.open_gate(blocker["conversation_id"])

    doors = [client(server if n % 2 else other) for n in range(10)]
    racing = queued[10:]
    cancels = [lambda door=door, run=run: door.cancel(run["id"]) for door, run in zip(doors, racing, strict=True)]
    answers = at_once(*cancels, free_the_place)[:-1]
    assert api.until_status(blocker["id"])["status"] == "completed"
    assert api.submit("shop", "next", wait=30)["status"] == "completed"  # it was behind all of them
    for run in queued[:10]:
        assert api.run(run["id"])["status"] == "cancelled"
        assert [event.type for event in api.events(run["id"])] == ["run.queued", "message.completed", "run.cancelled"]
    for answer in answers:
        assert answer["status"] in ("cancelled", "completed")
        assert api.run(answer["id"])["status"] == answer["status"]
    asked = [last_words(request)[0] for request in model.requests]
    assert not [text for text in asked if text in {f"queued {n}" for n in range(10)}]
    started = {line["run"] for line in folder.ledger("first")}
    assert not started & {run["id"] for run in queued[:10]}


# O06
def test_a_cancel_of_a_run_that_had_ended_changes_nothing(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model({"fail": [broken("No.", ending="content_filter")], "*": ["Done."]})
    server = start(field_app(SHOP), env=model_env(model))
    api = client(server)
    for text, status in (("work", "completed"), ("fail", "failed")):
        run = api.submit("shop", text, wait=30)
        assert run["status"] == status
        events = api.events(run["id"])
        assert api.cancel(run["id"]) == run
        assert api.cancel(run["id"]) == run
        assert api.events(run["id"]) == events


# O06
def test_nobody_cancels_a_run_of_somebody_else(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    model = strict_model([call("second"), "Done."])
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api, stranger = client(server), client(server, "globex")
    run = api.submit("shop", "work")
    until(lambda: folder.ledger("second"))
    answer = stranger.post_path(f"/runs/{run['id']}/cancel")
    assert answer.status_code == 404
    assert answer.json()["code"] == stranger.post_path("/runs/run_00000000000000000000000000/cancel").json()["code"]
    folder.open_gate(run["conversation_id"])
    assert api.until_status(run["id"])["status"] == "completed"


POINTS = ("an idempotent tool runs", "an unsafe tool runs", "a call has not started", "the next request", "in its text")


class Conversations:
    """One conversation for each point at which a run can be stopped, and what is true of each afterwards."""

    def __init__(self, strict_model: Any, last_words: Any, requests_about: Any, results_in: Any) -> None:
        self._last_words, self._requests_about, self._results_in = last_words, requests_about, results_in
        self.gates = {"the next request": Gate(), "in its text": Gate()}
        self.model = strict_model(self._answer)
        self.runs: dict[str, dict[str, Any]] = {}

    def _answer(self, request: ModelRequest) -> Any:
        text, said = self._last_words(request)
        if text not in POINTS:
            return f"I go on: {text}"
        if said == 0:
            return call("first")
        if text == "an unsafe tool runs":
            return call("charge")
        if text == "a call has not started":
            return reply("Three at once.", call("second"), call("third"), call("charge"))
        if text == "an idempotent tool runs":
            return call("second")
        if text == "the next request":
            return reply(self.gates[text], "never said")
        return reply("The first half, ", self.gates[text], "the second half.")

    def begin(self, api: Any, folder: Any, until: Any, reader: Any, server: Any) -> None:
        for point in POINTS:
            self.runs[point] = api.submit("shop", point)
        for tool, point in (("second", POINTS[0]), ("charge", POINTS[1]), ("second", POINTS[2])):
            until(lambda tool=tool, point=point: folder.ledger(tool, run=self.runs[point]["id"]))
        assert self.gates["the next request"].wait_reached()
        reader(server, self.runs["in its text"]).wait_for("message.delta", text="The first half, ")

    def go_on(self, api: Any, text: str) -> None:
        for point, run in self.runs.items():
            answer = api.submit("shop", f"{text}: {point}", conversation_id=run["conversation_id"], wait=30)
            assert (answer["status"], answer["output"]) == ("completed", f"I go on: {text}: {point}")

    def check_requests(self, text: str) -> None:
        assert self.model.refused == []
        for point in POINTS:
            [request] = self._requests_about(self.model, f"{text}: {point}")
            first, *others = self._results_in(request)
            assert (first.tool, first.content) == ("first", "the first result")
            results = [(one.tool, one.content) for one in others]
            if point == "an unsafe tool runs":
                [(_, told)] = results
                assert "outcome is unknown" in told
            elif point == "a call has not started":
                assert [tool for tool, _ in results] == ["second", "third", "charge"]
                assert "stopped while it was being done" in results[0][1]
                assert all("stopped before it started" in told for _, told in results[1:])
            elif point == "an idempotent tool runs":
                [(_, told)] = results
                assert "stopped while it was being done" in told
            else:
                assert not results
            said = [message.text for message in request.messages if isinstance(message, AssistantMessage)]
            assert ("The first half, " in said) == (point == "in its text")
            assert not any("never said" in text or "second half" in text for text in said)

    def check_messages(self, api: Any) -> None:
        for point, run in self.runs.items():
            messages = [one for one in api.messages("shop", run["conversation_id"]) if one["run_id"] == run["id"]]
            calls = {one["tool"]: one["status"] for message in messages for one in message["calls"]}
            assert calls.pop("first") == "done"
            assert calls == {
                "an idempotent tool runs": {"second": "stopped"},
                "an unsafe tool runs": {"charge": "unknown"},
                "a call has not started": {"second": "stopped", "third": "stopped", "charge": "stopped"},
            }.get(point, {})
            texts = [(one["text"], one["status"]) for one in messages if one["role"] == "assistant" and one["text"]]
            assert texts == {
                "in its text": [("The first half, ", "stopped")],
                "a call has not started": [("Three at once.", "complete")],
            }.get(point, [])


@pytest.fixture
def conversations(strict_model: Any, last_words: Any, requests_about: Any, results_in: Any) -> Conversations:
    return Conversations(strict_model, last_words, requests_about, results_in)


# O08
@pytest.mark.parametrize("how", ["once", "twice with a message at the same moment"])
def test_after_a_cancel_at_any_point_the_conversation_goes_on_with_what_was_true(
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    until: Any,
    model_env: Any,
    at_once: Any,
    conversations: Conversations,
    how: str,
) -> None:
    folder = field_app(SHOP)
    env = {**model_env(conversations.model), "AI_RUNS_PARALLEL_CALLS": "1"}
    server = start(folder, env=env)
    api = client(server)
    conversations.begin(api, folder, until, reader, server)
    if how == "once":
        for run in conversations.runs.values():
            assert api.cancel(run["id"])["status"] == "cancelled"
        conversations.go_on(api, "go on")
    else:
        second, third = client(server), client(server)
        for point, run in conversations.runs.items():
            text, where = f"go on: {point}", run["conversation_id"]
            *cancelled, answer = at_once(
                lambda run=run: second.cancel(run["id"]),
                lambda run=run: third.cancel(run["id"]),
                lambda text=text, where=where: api.submit("shop", text, conversation_id=where, wait=30),
            )
            assert [one["status"] for one in cancelled] == ["cancelled", "cancelled"]
            assert answer["status"] == "completed"
    conversations.check_requests("go on")
    conversations.check_messages(api)
    server.stop()
    again = start(folder, env=env)
    conversations.go_on(client(again), "and now")
    conversations.check_requests("and now")
    conversations.check_messages(client(again))
    assert not folder.ledger("third")
    assert len(folder.ledger("charge")) == 1


# O08
@pytest.mark.crash
def test_a_run_cancelled_between_a_crash_and_its_takeover_leaves_a_history_that_goes_on(
    field_app: Any, start: Any, client: Any, reader: Any, until: Any, model_env: Any, conversations: Conversations
) -> None:
    folder = field_app(SHOP)
    env = {**model_env(conversations.model), "AI_RUNS_PARALLEL_CALLS": "1"}
    server = start(folder, env=env)
    conversations.begin(client(server), folder, until, reader, server)
    server.kill9()
    door = start(folder, env={**env, "AI_RUNS_WORKER": "false"})
    api = client(door)
    for run in conversations.runs.values():
        assert api.cancel(run["id"])["status"] == "cancelled"
    start(folder, env=env)
    conversations.go_on(api, "go on")
    conversations.check_requests("go on")
    conversations.check_messages(api)
    assert not folder.ledger("third")
    assert len(folder.ledger("charge")) == 1
    assert {line["attempt"] for line in folder.ledger()} == {1}
