"""Handlers of events in real processes: killed in the middle, two at once, and told of what happened without them."""

from __future__ import annotations

from typing import Any

SOURCE = '''
import os

from amoxi_py import RunEvent, agent, on, singleton, tool
from .ledger import gate, note


def tell(what, event, **more):
    note(what, server=os.environ["SERVER_OF_TEST"], run=event.run_id, attempt=event.attempt, **more)


@singleton
class Pager:
    def ring(self, event):
        tell("ring", event, call=event.data["call_id"], asked_by=event.principal.id)


@tool(needs_approval=True)
async def cancel_order(order_id: str) -> str:
    """Cancel an order.

    Args:
        order_id: The order number, e.g. A-1001
    """
    return "cancelled"


@agent(tools=[cancel_order], model="offline")
class Desk:
    """You cancel orders."""


@on("approval.requested")
async def tell_staff(event: RunEvent, pager: Pager) -> None:
    tell("begin", event)
    if event.attempt == 1:
        await gate("pager")
    pager.ring(event)
'''


def test_a_handler_whose_process_is_killed_is_called_again_and_only_by_one_of_two_servers(
    field_app: Any, start: Any, client: Any, until: Any, lease_s: float
) -> None:
    folder = field_app(SOURCE)
    servers = {name: start(folder, env={"SERVER_OF_TEST": name}) for name in ("one", "two")}
    asked = client(servers["one"]).submit("desk", "Cancel order A-1001")
    until(lambda: folder.ledger("begin"))
    (begun,) = folder.ledger("begin")
    servers.pop(begun["server"]).kill9()

    until(lambda: folder.ledger("ring"), timeout=lease_s + 60)
    ((name, left),) = servers.items()
    api = client(left)
    call_id = api.until_status(asked["id"], "waiting")["waiting_for"][0]["call_id"]
    (rung,) = folder.ledger("ring")
    assert (rung["run"], rung["call"], rung["asked_by"], rung["attempt"]) == (asked["id"], call_id, "api:acme", 2)
    assert rung["server"] == name

    folder.open_gate("pager")
    third = start(folder, env={"SERVER_OF_TEST": "three"})
    late = [api.submit("desk", "Cancel order A-1002"), client(third).submit("desk", "Cancel order A-1003")]
    until(lambda: len(folder.ledger("ring")) == 1 + len(late))
    assert {line["run"] for line in folder.ledger("ring")[1:]} == {run["id"] for run in late}
    assert {line["server"] for line in folder.ledger("ring")} == {name}, "who has the handler keeps it"

    assert left.stop() == 0
    last = client(third).submit("desk", "Cancel order A-1004")
    until(lambda: folder.ledger("ring", run=last["id"]))
    assert [line["attempt"] for line in folder.ledger("ring")] == [2, 1, 1, 1], "an orderly stop repeats nothing"
