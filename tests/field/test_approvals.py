"""A tool that needs approval runs only after a person approved it, once, with exactly the arguments that were shown."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any

import pytest

from amoxi_py.testing import call, raw_call, reply, tries

SHOP = '''
from typing import Any
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(read_only=True)
async def lookup(order_id: str, ctx: ToolContext) -> str:
    """Look an order up."""
    note("lookup", ctx, order_id=order_id)
    return f"{order_id} is there"


@tool(needs_approval=True)
async def cancel_order(order_id: str, ctx: ToolContext, note_for_shop: str = "", more: Any = None) -> str:
    """Cancel an order."""
    note("cancel", ctx, arguments={"order_id": order_id, "note_for_shop": note_for_shop, "more": more})
    return f"{order_id} is cancelled"


@tool(needs_approval=True, idempotent=True)
async def refund(order_id: str, ctx: ToolContext) -> str:
    """Refund an order, slowly."""
    note("refund", ctx, order_id=order_id)
    await gate("refund")
    return f"{order_id} is refunded"


@tool(needs_approval=True)
async def charge(order_id: str, ctx: ToolContext) -> str:
    """Charge an order, slowly; nobody may do that twice."""
    note("charge", ctx, order_id=order_id)
    await gate("charge")
    return f"{order_id} is charged"


def is_large(ctx, amount: int) -> bool:
    note("asked", ctx, amount=amount)
    return amount >= 100


@tool(needs_approval=is_large)
async def pay(amount: int, ctx: ToolContext) -> str:
    """Pay."""
    note("pay", ctx, amount=amount)
    return f"{amount} paid"


TOOLS = [lookup, cancel_order, refund, charge, pay]


@agent(tools=TOOLS)
class Shop:
    """You run a shop."""


@agent(tools=TOOLS, on_busy="queue")
class QueueingShop:
    """You run a shop."""


@agent(tools=TOOLS, on_busy="reject")
class RejectingShop:
    """You run a shop."""
'''

CANCEL = [call("cancel_order", order_id="A-1001"), "I have an answer."]
INSTEAD = "make it A-1003 instead"


def decision_of(answer: Any) -> tuple[int, str | None]:
    body = answer.json()
    return answer.status_code, body.get("decision") or body.get("code")


def statuses(api: Any, agent: str, conversation_id: str) -> dict[str, str]:
    """The statuses of all calls of a conversation, by tool and arguments."""
    messages = api.messages(agent, conversation_id)
    return {one["call_id"]: one["status"] for message in messages for one in message["calls"]}


def types_of(events: Any) -> list[str]:
    return [event.type for event in events]


# O09
def test_a_message_ends_the_run_whose_approval_is_open_and_a_late_approve_does_nothing(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, requests_about: Any
) -> None:
    model = strict_model({"cancel A-1001": CANCEL, "*": ["As you like."]})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    replaced = []
    for n, typed in enumerate((INSTEAD, "approve", INSTEAD, "approve")):
        run = api.submit("shop", "cancel A-1001")
        [wanted] = api.until_status(run["id"], "waiting")["waiting_for"]
        answer = api.submit("shop", typed, conversation_id=run["conversation_id"], wait=20)
        assert (answer["status"], answer["output"]) == ("completed", "As you like.")
        assert api.run(run["id"])["status"] == "cancelled"
        if n < 2:
            assert decision_of(api.decide(run["id"], wanted["call_id"], "approve")) == (409, "approval_closed")
        replaced.append((run, wanted))
    server.stop()
    server = start(folder, env=model_env(model))
    api = client(server)
    for run, wanted in replaced:
        for decision in ("approve", "decline"):
            assert decision_of(api.decide(run["id"], wanted["call_id"], decision)) == (409, "approval_closed")
        assert statuses(api, "shop", run["conversation_id"]) == {wanted["call_id"]: "stopped"}
        assert types_of(api.events(run["id"]))[-3:] == ["run.waiting", "tool.completed", "run.cancelled"]
        later = api.submit("shop", "and now", conversation_id=run["conversation_id"], wait=20)
        assert later["status"] == "completed"
    assert folder.ledger() == []
    assert len(requests_about(model, INSTEAD)) == len(requests_about(model, "approve")) == 2


# O09
def test_a_queueing_agent_keeps_the_approval_open_and_the_message_behind_it(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, requests_about: Any
) -> None:
    model = strict_model({"cancel A-1001": CANCEL, "*": ["As you like."]})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    waiting = []
    for decision, typed in (("approve", INSTEAD), ("decline", INSTEAD), ("approve", "approve"), ("decline", "approve")):
        run = api.submit("queueing-shop", "cancel A-1001")
        [wanted] = api.until_status(run["id"], "waiting")["waiting_for"]
        second = api.submit("queueing-shop", typed, conversation_id=run["conversation_id"])
        assert second["status"] == "queued"
        assert api.run(run["id"])["waiting_for"] == [wanted]
        waiting.append((decision, typed, run, wanted, second))
    server.stop()
    server = start(folder, env=model_env(model))
    api = client(server)
    for decision, typed, run, wanted, second in waiting:
        assert api.run(second["id"])["status"] == "queued"
        assert api.run(run["id"])["waiting_for"] == [wanted]
        assert folder.ledger("cancel", run=run["id"]) == []
        assert decision_of(api.decide(run["id"], wanted["call_id"], decision)) == (200, decision)
        assert api.until_status(run["id"])["output"] == "I have an answer."
        assert api.until_status(second["id"])["output"] == "As you like."
        assert len(folder.ledger("cancel", run=run["id"])) == (decision == "approve")
        texts = [one["text"] for one in api.messages("queueing-shop", run["conversation_id"])]
        assert texts == ["cancel A-1001", "", "I have an answer.", typed, "As you like."]
    assert len(requests_about(model, INSTEAD)) == len(requests_about(model, "approve")) == 2


# O09
def test_a_rejecting_agent_refuses_the_message_and_the_approval_stays_valid(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, requests_about: Any
) -> None:
    model = strict_model({"cancel A-1001": CANCEL, "*": ["As you like."]})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    run = api.submit("rejecting-shop", "cancel A-1001")
    [wanted] = api.until_status(run["id"], "waiting")["waiting_for"]
    before = api.messages("rejecting-shop", run["conversation_id"])
    for restarted in (False, True):
        if restarted:
            server.stop()
            server = start(folder, env=model_env(model))
            api = client(server)
        for typed in (INSTEAD, "approve"):
            refused = api.post_path(
                "/agents/rejecting-shop/runs", {"message": typed, "conversation_id": run["conversation_id"]}
            )
            assert (refused.status_code, refused.json()["code"]) == (409, "conversation_busy")
        assert api.run(run["id"])["waiting_for"] == [wanted]
        assert api.messages("rejecting-shop", run["conversation_id"]) == before
    assert folder.ledger() == []
    assert decision_of(api.decide(run["id"], wanted["call_id"], "approve")) == (200, "approve")
    assert api.until_status(run["id"])["output"] == "I have an answer."
    assert len(folder.ledger("cancel")) == 1
    assert requests_about(model, INSTEAD) == requests_about(model, "approve") == []
    later = api.submit("rejecting-shop", INSTEAD, conversation_id=run["conversation_id"], wait=20)
    assert later["status"] == "completed"


SHOWN = {
    "order_id": "A-1001",
    "note_for_shop": '„Größe 42“ \n\t "quoted" \\ back \u2028 🙂 </script> % {x}',
    "more": {"big": 123456789012345678901234567890, "small": 1e-9, "list": [True, None, "", [], {}], "": "empty"},
}


# O11
@pytest.mark.crash
def test_an_approved_call_runs_with_the_arguments_that_were_shown_also_after_a_crash_and_changed_instructions(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, requests_about: Any
) -> None:
    answers = [tries(call("cancel_order", **SHOWN), call("cancel_order", order_id="A-9999")), "It is cancelled."]
    model = strict_model({"here": answers, "there": answers})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    runs = {text: client(server).submit("shop", text) for text in ("here", "there")}
    wanted = {text: client(server).until_status(run["id"], "waiting")["waiting_for"][0] for text, run in runs.items()}
    server.kill9()
    module = folder / "app/agents.py"
    module.write_text(module.read_text("utf-8").replace("You run a shop.", "You run another shop."), "utf-8")
    server = start(folder, env=model_env(model))
    other = start(folder, env={**model_env(model), "AI_RUNS_WORKER": "false"})
    for text, api in (("here", client(server)), ("there", client(other))):
        run, shown = runs[text], wanted[text]
        assert api.run(run["id"])["waiting_for"] == [shown]
        answer = api.decide(run["id"], shown["call_id"], "approve")
        assert decision_of(answer) == (200, "approve")
        assert api.until_status(run["id"])["output"] == "It is cancelled."
        [requested] = [event for event in api.events(run["id"]) if event.type == "approval.requested"]
        assert requested.data["arguments"] == shown["arguments"] == answer.json()["arguments"] == SHOWN
        [line] = folder.ledger("cancel", run=run["id"])
        assert (line["call"], line["arguments"]) == (shown["call_id"], SHOWN)
        first, second = requests_about(model, text)
        assert (first.instructions, second.instructions) == ("You run a shop.", "You run another shop.")
        assert len(first.messages) == 1


BATCH = reply(
    "I look and cancel.",
    call("lookup", order_id="A-1001"),
    call("cancel_order", order_id="A-1001"),
    call("cancel_order", order_id="A-1002"),
)


class Batch:
    """A run whose reply had one plain call and two that need approval, at the moment when it waits."""

    def __init__(self, api: Any, text: str) -> None:
        self.text = text
        self.run = api.submit("shop", text)
        first, second = api.until_status(self.run["id"], "waiting")["waiting_for"]
        self.second, self.third = first["call_id"], second["call_id"]
        self.listed = [first, second]

    def check(
        self, api: Any, folder: Any, model: Any, requests_about: Any, results_in: Any, approved: set[str]
    ) -> None:
        assert api.until_status(self.run["id"])["output"] == "That is all."
        [looked] = folder.ledger("lookup", run=self.run["id"])
        cancelled = {
            line["call"]: line["arguments"]["order_id"] for line in folder.ledger("cancel", run=self.run["id"])
        }
        assert len(folder.ledger("cancel", run=self.run["id"])) == len(approved)
        arguments = {one["call_id"]: one["arguments"]["order_id"] for one in self.listed}
        assert cancelled == {call_id: arguments[call_id] for call_id in approved}
        asked, told = requests_about(model, self.text)
        assert results_in(asked) == []
        results = [(one.call_id, one.content) for one in results_in(told)]
        assert results == [
            (looked["call"], "A-1001 is there"),
            *(
                (
                    call_id,
                    f"{arguments[call_id]} is cancelled" if call_id in approved else "The person declined this action.",
                )
                for call_id in (self.second, self.third)
            ),
        ]


# O12
def test_each_of_several_approvals_of_one_reply_is_decided_for_itself_across_a_restart(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    requests_about: Any,
    results_in: Any,
    until: Any,
    at_once: Any,
) -> None:
    twins = reply(call("lookup", order_id="A-1001"), *(call("cancel_order", order_id="A-1002") for _ in range(2)))
    model = strict_model({"twins": [twins, "That is all."], "*": [BATCH, "That is all."]})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    later, earlier, together, same = (Batch(api, text) for text in ("third first", "second first", "at once", "twins"))
    assert [one["arguments"]["order_id"] for one in later.listed] == ["A-1001", "A-1002"]
    assert [one["arguments"]["order_id"] for one in same.listed] == ["A-1002", "A-1002"]

    assert decision_of(api.decide(later.run["id"], later.third, "approve")) == (200, "approve")
    assert decision_of(api.decide(earlier.run["id"], earlier.second, "decline")) == (200, "decline")
    assert decision_of(api.decide(same.run["id"], same.second, "approve")) == (200, "approve")
    until(lambda: folder.ledger("cancel", call=later.third))
    until(lambda: folder.ledger("cancel", call=same.second))
    for batch, left in ((later, 0), (earlier, 1), (same, 1), (together, None)):
        expected = batch.listed if left is None else [batch.listed[left]]
        assert api.until_status(batch.run["id"], "waiting")["waiting_for"] == expected
    server.stop()
    assert all(len(requests_about(model, batch.text)) == 1 for batch in (later, earlier, together, same))
    server = start(folder, env=model_env(model))
    api, other = client(server), client(server)
    for batch, left in ((later, 0), (earlier, 1), (same, 1), (together, None)):
        expected = batch.listed if left is None else [batch.listed[left]]
        assert api.run(batch.run["id"])["waiting_for"] == expected
    assert decision_of(api.decide(later.run["id"], later.second, "decline")) == (200, "decline")
    assert decision_of(api.decide(earlier.run["id"], earlier.third, "approve")) == (200, "approve")
    assert decision_of(api.decide(same.run["id"], same.third, "decline")) == (200, "decline")
    answers = at_once(
        lambda: api.decide(together.run["id"], together.second, "decline"),
        lambda: other.decide(together.run["id"], together.third, "approve"),
    )
    assert [decision_of(answer) for answer in answers] == [(200, "decline"), (200, "approve")]
    for batch, approved in (
        (later, {later.third}),
        (earlier, {earlier.third}),
        (together, {together.third}),
        (same, {same.second}),
    ):
        batch.check(api, folder, model, requests_about, results_in, approved)


# O12
def test_what_is_approved_runs_at_once_and_the_others_stay_open_and_listed_while_it_runs(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any, requests_about: Any
) -> None:
    batch = reply(call("refund", order_id="A-1001"), call("cancel_order", order_id="A-1002"))
    model = strict_model({"both": [batch, "Both are done."]})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    run = api.submit("shop", "both")
    slow, quick = api.until_status(run["id"], "waiting")["waiting_for"]
    api.decide(run["id"], slow["call_id"], "approve")
    until(lambda: folder.ledger("refund"))
    assert api.run(run["id"])["waiting_for"] == [quick]
    assert statuses(api, "shop", run["conversation_id"]) == {slow["call_id"]: "started", quick["call_id"]: "waiting"}
    assert folder.ledger("cancel") == []
    assert decision_of(api.decide(run["id"], quick["call_id"], "approve")) == (200, "approve")
    until(lambda: folder.ledger("cancel"))
    assert len(requests_about(model, "both")) == 1
    folder.open_gate("refund")
    assert api.until_status(run["id"])["output"] == "Both are done."
    assert api.run(run["id"])["waiting_for"] == []


# O13
@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_of_twenty_decisions_at_the_same_moment_on_two_servers_one_wins(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, at_once: Any
) -> None:
    model = strict_model({"*": CANCEL})
    folder = field_app(SHOP)
    servers = [start(folder, env=model_env(model)) for _ in range(2)]
    doors = [client(servers[n % 2]) for n in range(20)]
    won: set[str] = set()
    trial = 0
    while trial < 3 or won != {"approve", "decline"}:
        trial += 1
        assert trial <= 20, f"both must win now and then, but it was always {won}"
        api = doors[0]
        run = api.submit("shop", f"cancel it, {trial}")
        tabs = [reader(server, run) for server in servers]
        [wanted] = api.until_status(run["id"], "waiting")["waiting_for"]
        place = f"/agents/shop/conversations/{run['conversation_id']}/events"
        assert statuses(doors[1], "shop", run["conversation_id"]) == {wanted["call_id"]: "waiting"}
        with doors[1].follow(place) as reloaded:
            assert next(event for event in reloaded if event.type == "approval.requested").data["call_id"]
        decisions = ["approve" if n % 4 < 2 else "decline" for n in range(20)]
        answers = at_once(
            *(
                functools.partial(door.decide, run["id"], wanted["call_id"], decision)
                for door, decision in zip(doors, decisions, strict=True)
            )
        )
        [winner] = {answer.json()["decision"] for answer in answers if answer.status_code == 200}
        won.add(winner)
        for decision, answer in zip(decisions, answers, strict=True):
            expected = (200, winner) if decision == winner else (409, "already_decided")
            assert decision_of(answer) == expected
        assert api.until_status(run["id"])["status"] == "completed"
        for tab in tabs:
            events = tab.wait_end()
            told = [event.data["decision"] for event in events if event.type == "approval.decided"]
            assert told == [winner]
        assert len(folder.ledger("cancel", run=run["id"])) == (winner == "approve")
        decided = statuses(doors[1], "shop", run["conversation_id"])
        assert decided == {wanted["call_id"]: "done" if winner == "approve" else "declined"}
        with doors[1].follow(place) as reloaded:
            assert next(event for event in reloaded if event.type == "approval.decided").data["decision"] == winner
        assert decision_of(doors[1].decide(run["id"], wanted["call_id"], winner)) == (200, winner)


# O13
def test_nobody_decides_in_a_conversation_of_somebody_else(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model({"*": CANCEL})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api, stranger = client(server), client(server, "globex")
    run = api.submit("shop", "cancel A-1001")
    own = stranger.submit("shop", "cancel A-1001")
    [wanted] = api.until_status(run["id"], "waiting")["waiting_for"]
    for run_id in (run["id"], own["id"]):
        for decision in ("approve", "decline"):
            assert stranger.decide(run_id, wanted["call_id"], decision).status_code == 404
    assert api.decide(own["id"], wanted["call_id"], "approve").status_code == 404
    assert api.run(run["id"])["waiting_for"] == [wanted]
    assert decision_of(api.decide(run["id"], wanted["call_id"], "approve")) == (200, "approve")
    assert api.until_status(run["id"])["status"] == "completed"
    assert stranger.decide(run["id"], wanted["call_id"], "approve").status_code == 404
    assert len(folder.ledger("cancel")) == 1


def test_an_approval_that_nobody_decides_in_time_expires_and_the_run_goes_on_without_the_tool(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, requests_about: Any, results_in: Any
) -> None:
    batch = reply(call("cancel_order", order_id="A-1001"), call("cancel_order", order_id="A-1002"))
    model = strict_model({"both": [batch, "One of them."], "*": CANCEL})
    folder = field_app(SHOP)
    env = {**model_env(model), "AI_APPROVALS_EXPIRE_AFTER_S": "1.5"}
    server = start(folder, env=env)
    api = client(server)
    run, other = api.submit("shop", "both"), api.submit("shop", "cancel A-1001")
    late, early = api.until_status(run["id"], "waiting")["waiting_for"]
    [alone] = api.until_status(other["id"], "waiting")["waiting_for"]
    assert late["expires_at"] is not None
    assert decision_of(api.decide(run["id"], early["call_id"], "approve")) == (200, "approve")
    assert api.until_status(run["id"])["output"] == "One of them."
    assert api.until_status(other["id"])["output"] == "I have an answer."
    for one, wanted in ((run, late), (other, alone)):
        for decision in ("approve", "decline"):
            assert decision_of(api.decide(one["id"], wanted["call_id"], decision)) == (409, "approval_expired")
    told = [one.content for one in results_in(requests_about(model, "both")[1])]
    assert told == ["Nobody decided in time, so this action was not done.", "A-1002 is cancelled"]
    assert statuses(api, "shop", run["conversation_id"]) == {late["call_id"]: "declined", early["call_id"]: "done"}
    assert [line["call"] for line in folder.ledger("cancel")] == [early["call_id"]]


def test_an_approval_that_expired_while_no_server_ran_cannot_be_given_any_more(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    model = strict_model({"*": CANCEL})
    folder = field_app(SHOP)
    env = {**model_env(model), "AI_APPROVALS_EXPIRE_AFTER_S": "1"}
    server = start(folder, env=env)
    run = client(server).submit("shop", "cancel A-1001")
    [wanted] = client(server).until_status(run["id"], "waiting")["waiting_for"]
    server.kill9()
    door = start(folder, env={**env, "AI_RUNS_WORKER": "false"})
    api = client(door)
    assert api.run(run["id"])["waiting_for"] == [wanted]
    until(lambda: datetime.now(UTC) > datetime.fromisoformat(wanted["expires_at"]))
    assert decision_of(api.decide(run["id"], wanted["call_id"], "approve")) == (409, "approval_expired")
    start(folder, env=env)
    assert api.until_status(run["id"])["output"] == "I have an answer."
    assert decision_of(api.decide(run["id"], wanted["call_id"], "approve")) == (409, "approval_expired")
    assert folder.ledger() == []


def test_edited_arguments_are_the_ones_that_run_and_are_part_of_the_decision(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    last_words: Any,
    requests_about: Any,
    results_in: Any,
) -> None:
    model = strict_model({"*": [call("cancel_order", order_id="A-1001", more=1), "I have an answer."]})
    folder = field_app(SHOP)
    server = start(folder, env={**model_env(model), "AI_RUNS_WORKER": "false"})
    worker = start(folder, env=model_env(model))
    api = client(server)
    run = api.submit("shop", "cancel A-1001")
    [wanted] = api.until_status(run["id"], "waiting")["waiting_for"]
    worker.stop()

    edited = {**SHOWN, "order_id": "A-1003"}
    refused = api.decide(run["id"], wanted["call_id"], "approve", arguments={"order_id": 7, "colour": "red"})
    assert (refused.status_code, refused.json()["code"]) == (422, "arguments_invalid")
    assert {one["field"] for one in refused.json()["errors"]} == {"arguments.order_id", "arguments.colour"}
    assert api.decide(run["id"], wanted["call_id"], "decline", arguments=edited).status_code == 422
    assert api.run(run["id"])["waiting_for"] == [wanted]

    answer = api.decide(run["id"], wanted["call_id"], "approve", arguments=edited)
    assert decision_of(answer) == (200, "approve")
    assert answer.json()["arguments"] == edited
    assert api.decide(run["id"], wanted["call_id"], "approve", arguments=edited).json() == answer.json()
    for other in ({}, {"arguments": {**edited, "order_id": "A-1004"}}, {"arguments": wanted["arguments"]}):
        assert decision_of(api.decide(run["id"], wanted["call_id"], "approve", **other)) == (409, "already_decided")
    server.kill9()
    server = start(folder, env=model_env(model))
    api = client(server)
    assert api.until_status(run["id"])["output"] == "I have an answer."
    [line] = folder.ledger("cancel")
    assert (line["call"], line["arguments"]) == (wanted["call_id"], edited)
    [decided] = [event for event in api.events(run["id"]) if event.type == "approval.decided"]
    assert decided.data["arguments"] == edited
    [told] = results_in(requests_about(model, "cancel A-1001")[1])
    assert told.content.startswith("A-1003 is cancelled")
    assert "A person changed the arguments" in told.content


@pytest.mark.crash
def test_whether_to_ask_is_decided_once_for_each_call_and_an_edit_does_not_ask_again(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    both = reply(call("pay", amount=500), call("pay", amount=5))
    model = strict_model({"pay": [both, "Paid."]})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    run = client(server).submit("shop", "pay")
    [wanted] = client(server).until_status(run["id"], "waiting")["waiting_for"]
    assert wanted["arguments"] == {"amount": 500}
    server.kill9()
    server = start(folder, env=model_env(model))
    api = client(server)
    assert decision_of(api.decide(run["id"], wanted["call_id"], "approve", arguments={"amount": 400})) == (
        200,
        "approve",
    )
    assert api.until_status(run["id"])["output"] == "Paid."
    assert sorted(line["amount"] for line in folder.ledger("asked")) == [5, 500]
    assert sorted(line["amount"] for line in folder.ledger("pay")) == [5, 400]


@pytest.mark.crash
def test_an_approved_call_that_a_crash_interrupts_is_taken_up_as_its_tool_allows_and_asks_nobody_again(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    until: Any,
    requests_about: Any,
    results_in: Any,
) -> None:
    batch = reply(call("refund", order_id="A-1001"), raw_call("charge", '{"order_id": "A-1002"}'))
    model = strict_model({"both": [batch, "That is all."]})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    run = api.submit("shop", "both")
    safe, unsafe = api.until_status(run["id"], "waiting")["waiting_for"]
    api.decide(run["id"], safe["call_id"], "approve", arguments={"order_id": "A-1009"})
    api.decide(run["id"], unsafe["call_id"], "approve")
    until(lambda: folder.ledger("refund") and folder.ledger("charge"))
    server.kill9()
    folder.open_gate("refund")
    folder.open_gate("charge")
    server = start(folder, env=model_env(model))
    api = client(server)
    assert api.until_status(run["id"])["output"] == "That is all."
    lines = [(line["call"], line["order_id"]) for line in folder.ledger("refund")]
    assert lines == [(safe["call_id"], "A-1009")] * 2
    assert len(folder.ledger("charge")) == 1
    types = types_of(api.events(run["id"]))
    assert types.count("approval.requested") == types.count("approval.decided") == 2
    first, second = results_in(requests_about(model, "both")[1])
    assert first.content.startswith("A-1009 is refunded")
    assert "outcome is unknown" in second.content
