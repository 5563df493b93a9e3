"""X06: a live reader on each of two servers and one who comes later have the same list, whoever stored what between."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call

TRIALS = int(os.environ.get("AMOXI_TRIALS", "15"))
ENDS = ("run.completed", "run.failed", "run.cancelled")
WORKING = '''
import asyncio, random
from amoxi_py import ToolContext, agent, tool
from .ledger import note


@tool(needs_approval=True)
async def cancel_order(order: str, ctx: ToolContext) -> str:
    """Cancel an order."""
    note("cancelled", ctx, order=order)
    return f"cancelled {order}"


@tool(read_only=True)
async def work(n: int, ctx: ToolContext) -> int:
    """Work in small pieces."""
    for number in range(3):
        ctx.progress(f"{n}.{number}")
        await asyncio.sleep(random.random() * 0.02)
    return n


@agent(tools=[cancel_order, work], on_busy="queue")
class Worker:
    """You work."""
'''


def read(api: Any, path: str, seen: Callable[[Any], None] = lambda event: None) -> list[Any]:
    """The events of a conversation up to the end of its second run."""
    found, ended = [], 0
    with api.follow(path) as events:
        for event in events:
            found.append(event)
            seen(event)
            ended += event.type in ENDS
            if ended == 2:
                return found
    raise AssertionError(f"the stream ended after {[event.type for event in found]}")


def test_live_readers_on_both_servers_and_a_later_one_have_the_same_list_whatever_the_other_server_stores(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    database_env: Any,
    postgres_url: str,
    last_words: Any,
    one_story: Any,
) -> None:
    def play(request: ModelRequest) -> Any:
        text, said = last_words(request)
        if said or text == "more":
            return "Done."
        return [*(call("work", n=n) for n in range(8)), call("cancel_order", order="A-1")]

    folder = field_app(WORKING)
    env = {**model_env(strict_model(play)), **database_env(postgres_url), "AI_RUNS_PARALLEL_CALLS": "9"}
    servers = [start(folder, env=env), start(folder, env={**env, "AI_RUNS_WORKER": "false"})]
    apis = [client(server) for server in servers]
    chance = random.Random(6)
    seeds = [chance.random() for _ in range(TRIALS)]

    def trial(number: int) -> None:
        chance = random.Random(seeds[number])
        run = apis[0].submit("worker", "work")
        path = f"/agents/worker/conversations/{run['conversation_id']}/events"
        acts_at, queues_at = chance.randrange(4, 34), chance.randrange(2, 34)
        asked: list[str] = []
        moment = 0

        def store_from_elsewhere(event: Any) -> None:
            """The server that does not execute stores these between the events of the one that does."""
            nonlocal moment, queues_at
            moment += 1
            if event.type == "approval.requested":
                asked.append(event.data["call_id"])
            at_rest = event.type == "run.waiting" or event.type in ENDS
            if queues_at and (moment >= queues_at or at_rest):
                queues_at = 0
                apis[1].submit("worker", "more", conversation_id=run["conversation_id"])
            if moment == acts_at or event.type == "run.waiting":
                if number % 3 == 0:
                    apis[1].cancel(run["id"])
                elif asked:
                    apis[1].decide(run["id"], asked[0], "approve" if number % 3 == 1 else "decline")

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(read, apis[number % 2], path)
            acting = read(apis[1 - number % 2], path, store_from_elsewhere)
            lists = [acting, watching.result(60)]
        for told in lists:
            first = [event for event in told if event.data["run_id"] == run["id"]]
            one_story(first, "run.cancelled" if number % 3 == 0 else "run.completed")
            one_story([event for event in told if event.data["run_id"] != run["id"]])
        lists += [read(api, f"{path}?after=0") for api in apis]
        wholes = [[event for event in told if event.type != "message.delta"] for told in lists]
        assert all(whole == wholes[0] for whole in wholes)

    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(trial, number) for number in range(TRIALS)]:
            done.result(60)
    approved = {line["run"] for line in folder.ledger("cancelled")}
    assert len(approved) == len(folder.ledger("cancelled")) <= TRIALS / 3 + 1
