"""X11: a server whose clock is minutes wrong changes nothing, because all times are the database's."""

from __future__ import annotations

import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call, fail
from wrong_clock import faketime_env

WRONG_S = 300.0
WORKING = '''
import os
from amoxi_py import RunEvent, ToolContext, agent, on, tool
from .ledger import gate, note


@tool(idempotent=True)
async def hold(name: str, ctx: ToolContext) -> str:
    """Hold until the gate is open."""
    note("held", ctx, name=name)
    await gate(name)
    return f"held {name}"


@tool(needs_approval=True)
async def cancel_order(order: str, ctx: ToolContext) -> str:
    """Cancel an order."""
    note("cancelled", ctx, order=order)
    return f"cancelled {order}"


@agent(tools=[hold, cancel_order])
class Worker:
    """You work."""


@on("approval.requested")
async def tell_staff(event: RunEvent) -> None:
    note("told", call=event.data["call_id"], attempt=event.attempt)
    if event.attempt == 1:
        raise OSError("the pager is busy")
'''


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize("ahead", [WRONG_S, -WRONG_S], ids=["ahead", "behind"])
def test_nothing_comes_early_late_or_in_another_order_with_a_server_whose_clock_is_minutes_wrong(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    database_env: Any,
    postgres_url: str,
    last_words: Any,
    until: Any,
    lease_s: float,
    ahead: float,
) -> None:
    asked: list[str] = []

    def play(request: ModelRequest) -> Any:
        text, said = last_words(request)
        tool, _, rest = text.partition(" ")
        if said:
            return "Done."
        if tool == "busy":
            asked.append(text)
            return fail(429, retry_after=1) if len(asked) == 1 else "Done."
        if tool == "hello":
            return "Hello."
        return call(tool, **{"name" if tool == "hold" else "order": rest})

    expires_s = 2
    folder = field_app(WORKING, {"ai": {"approvals": {"expire-after-s": expires_s}}})
    env = {**model_env(strict_model(play)), **database_env(postgres_url)}
    right = start(folder, env=env)
    held = client(right).submit("worker", "hold long")
    until(lambda: folder.ledger("held"))
    wrong = start(folder, env={**env, **faketime_env(ahead)})
    there = client(wrong)
    date = parsedate_to_datetime(there.get_path("/health/live").headers["date"])
    assert abs(date.timestamp() - time.time() - ahead) < 20, "its clock is wrong indeed"

    apis = [client(right), there]
    keyed = [api.submit("worker", "hello 0", key="same") for api in apis]
    assert keyed[0]["id"] == keyed[1]["id"]
    made = [apis[n % 2].submit("worker", f"hello {n}", wait=10) for n in range(6)]
    for api in apis:
        listed = [run["id"] for run in api.get_path("/runs").json()["items"]]
        assert listed[: len(made)] == [run["id"] for run in reversed(made)]
    for run in made:
        assert abs(seconds(run["created_at"]) - time.time()) < 30, "times are the database's"
        assert run["created_at"] <= run["updated_at"]

    begun = time.monotonic()
    busy = there.submit("worker", "busy")
    orders = [api.submit("worker", f"cancel_order {n}") for n, api in enumerate(apis)]
    for api, order in zip(apis, orders, strict=True):
        (item,) = api.until_status(order["id"], "waiting")["waiting_for"]
        assert 0 < seconds(item["expires_at"]) - time.time() <= expires_s + 0.5
    for api, order in zip(reversed(apis), orders, strict=True):
        assert api.until_status(order["id"])["status"] == "completed"
        assert expires_s - 0.5 <= time.monotonic() - begun < expires_s + 60
    assert folder.ledger("cancelled") == []
    assert there.until_status(busy["id"])["status"] == "completed"
    assert time.monotonic() - begun < 60
    until(lambda: len(folder.ledger("told", attempt=2)) == 2, 60, "a handler is called again after its pause")

    until(lambda: time.monotonic() - begun > lease_s + 1)
    assert len(folder.ledger("held")) == 1, "nobody took over what is held"
    assert there.run(held["id"])["attempt"] == 1
    right.kill9()
    killed = time.monotonic()
    until(lambda: len(folder.ledger("held")) == 2, lease_s + 4)
    assert time.monotonic() - killed > 0.3 * lease_s, "not before the lease had run out"
    folder.open_gate("long")
    ended = there.until_status(held["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 2)
