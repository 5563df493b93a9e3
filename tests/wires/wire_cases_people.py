"""O08 to O12 and X15: cancels, messages, declines and approvals, whatever the wire format, with a kill between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest
from amoxi_py.testing import Gate, call, reply, thinking, tries
from wire_world import Case, World, last_text, results_in

POINTS = ("an idempotent tool runs", "an unsafe tool runs", "calls have not started", "the next request", "in its text")
INSTEAD = "make it A-1003 instead"
DECLINED = "The person declined this action."
SHOWN = {
    "order_id": "A-1001",
    "remark": '„Größe 42“ \n\t "quoted" \\ back \u2028 🙂 </script> % {x}',
    "more": {"big": 123456789012345678901234567890, "small": 1e-9, "list": [True, None, "", [], {}], "": "empty"},
}


def statuses(w: World, run: dict[str, Any]) -> dict[str, str]:
    return {one["tool"]: one["status"] for one in w.calls(run)}


# -- O08


def cancelled_at(point: str, *, killed_first: bool) -> Case:
    """A run is cancelled at this point: by a server that executes it, or between its crash and its takeover."""

    def case(w: World) -> Iterator[None]:
        held = Gate()
        then: dict[str, Any] = {
            "an idempotent tool runs": call("second"),
            "an unsafe tool runs": call("charge"),
            "calls have not started": reply("Four at once.", *map(call, ("second", "charge", "third", "first"))),
            "the next request": reply(held, "never said"),
            "in its text": reply("The first half, ", held, "the second half."),
        }
        run = w.ask("shop", "work", [call("first"), then[point]])
        if point == "the next request":
            assert held.wait_reached(20)
        if point == "in its text":
            w.reader(run).wait_for("message.delta", text="The first half, ")
        if point in ("an idempotent tool runs", "calls have not started"):
            w.until(lambda: w.ledger("second", run))
        if point in ("an unsafe tool runs", "calls have not started"):
            w.until(lambda: w.ledger("charge", run))
        if not killed_first:
            assert w.api.cancel(run["id"])["status"] == "cancelled"
            check_request(w, w.go_on(run), point)
        yield
        assert w.api.cancel(run["id"])["status"] == "cancelled"
        yield
        if killed_first:
            check_request(w, w.go_on(run), point)
        check_request(w, w.go_on(run, "and on"), point)
        found = statuses(w, run)
        assert found.pop("first") in ("done", "stopped")
        assert found == {
            "an idempotent tool runs": {"second": "stopped"},
            "an unsafe tool runs": {"charge": "unknown"},
            "calls have not started": {"second": "stopped", "charge": "unknown", "third": "stopped"},
        }.get(point, {})
        told = [one for one in w.api.messages("shop", run["conversation_id"]) if one["run_id"] == run["id"]]
        shown = [(one["text"], one["status"]) for one in told if one["role"] == "assistant" and one["text"]]
        assert shown == {
            "in its text": [("The first half, ", "stopped")],
            "calls have not started": [("Four at once.", "complete")],
        }.get(point, [])
        assert w.types(run)[-1] == "run.cancelled"
        assert not w.ledger("third", run)
        assert {line["attempt"] for line in w.folder.ledger(run=run["id"])} == {1}, "nothing ran after the cancel"

    return case


def check_request(w: World, request: ModelRequest, point: str) -> None:
    """What had ended is shown with its result, and what was interrupted with one that says so."""
    done, *others = results_in(request)
    assert (done.tool, done.content) == ("first", "the first result")
    assert w.errors([done, *others]) in (None, [False] + [True] * len(others))
    if point == "an idempotent tool runs":
        [one] = others
        assert "stopped while it was being done" in one.content
    elif point == "an unsafe tool runs":
        [one] = others
        assert "outcome is unknown" in one.content
    elif point == "calls have not started":
        assert [one.tool for one in others] == ["second", "charge", "third", "first"]
        assert "stopped while it was being done" in others[0].content
        assert "outcome is unknown" in others[1].content
        assert all("stopped before it started" in one.content for one in others[2:])
    else:
        assert others == []
    said = [one.text for one in request.messages if isinstance(one, AssistantMessage)]
    assert ("The first half, " in said) == (point == "in its text")
    assert not any("never said" in text or "second half" in text for text in said)


# -- O09


def written_while_it_waits(agent: str, typed: str) -> Case:
    """A person types while an approval is open, under each policy."""

    def case(w: World) -> Iterator[None]:
        run = w.ask(agent, "cancel A-1001", [call("cancel_order", order_id="A-1001"), "I have an answer."])
        [wanted] = w.waiting(run)
        message = {"message": w.script(typed, ["As you like."]), "conversation_id": run["conversation_id"]}
        answer = w.api.post_path(f"/agents/{agent}/runs", message)
        assert answer.status_code == (409 if agent == "rejecting-shop" else 202), answer.text
        if agent == "shop":
            w.ended(answer.json(), "As you like.")
            assert w.api.run(run["id"])["status"] == "cancelled"
            assert w.api.decide(run["id"], wanted["call_id"], "approve").status_code == 409
        else:
            assert w.api.run(run["id"])["waiting_for"] == [wanted]
        yield
        approved = w.api.decide(run["id"], wanted["call_id"], "approve")
        yield
        if agent == "shop":
            assert (approved.status_code, approved.json()["code"]) == (409, "approval_closed")
            assert w.types(run)[-3:] == ["run.waiting", "tool.completed", "run.cancelled"]
            assert statuses(w, run) == {"cancel_order": "stopped"}
        else:
            assert approved.status_code == 200
            w.ended(run, "I have an answer.")
            if agent == "queueing-shop":
                w.ended(answer.json(), "As you like.")
        assert len(w.ledger("cancel", run)) == (agent != "shop")
        assert len(w.requests(typed)) == (agent != "rejecting-shop")
        request = w.go_on(run)
        texts = [getattr(one, "text", None) for one in request.messages]
        assert texts.count(f"{w.name}: {typed}") == (agent != "rejecting-shop"), "the model is told it once"

    return case


# -- O10


def declined(tool: str) -> Case:
    """The same action in each form is declined twice, once on each side of a crash."""

    def case(w: World) -> Iterator[None]:
        arguments: Any = {"order_id": "A-1001", "lines": [1]}
        arguments = {"order": arguments} if tool == "cancel_whole" else {"order_id": "A-1001"}
        script = [call(tool, **arguments), call(tool, **arguments), "Then I leave it."]
        if tool == "ask_clerk":
            asked = "please cancel"
            script = [
                call("ask_clerk", message=w.script(asked, [call("cancel_order", order_id="A-1001")] * 2 + ["No."]))
            ]
            run = w.ask("front", "cancel it", [*script, "Then I leave it."])
            w.until(lambda: any(one["kind"] == "approval" for one in w.api.run(run["id"])["waiting_for"]))
        else:
            asked = "cancel it"
            run = w.ask("shop", asked, script)
        [one] = [one for one in w.waiting(run) if one["kind"] == "approval"]
        assert w.api.decide(run["id"], one["call_id"], "decline").status_code == 200

        def asked_again() -> Any:
            waiting = w.api.run(run["id"])["waiting_for"]
            return [two for two in waiting if two["kind"] == "approval" and two["call_id"] != one["call_id"]]

        [two] = w.until(asked_again, 20, "the repeated call asks again")
        yield
        answer = w.api.decide(run["id"], two["call_id"], "decline", reason="It is too late for that.")
        assert answer.status_code == 200, answer.text
        yield
        w.ended(run, "Then I leave it.")
        first, second, third = w.requests(asked)
        assert results_in(first) == []
        told = [(result.call_id, result.content) for result in results_in(third)]
        assert told == [
            (one["call_id"], DECLINED),
            (two["call_id"], f"{DECLINED} Reason: It is too late for that."),
        ]
        assert [(result.call_id, result.content) for result in results_in(second)] == told[:1]
        assert "tool.progress" not in w.types(run)
        assert not [line for line in w.folder.ledger("cancel") if line.get("call") in (one["call_id"], two["call_id"])]
        if tool == "cancel_sync":
            assert not [line for line in w.folder.ledger("cancel") if "call" not in line], "it has no context to note"

    return case


# -- O11


def approved_as_shown(w: World) -> Iterator[None]:
    wanted = reply(thinking("They want it cancelled."), call("cancel_order", **SHOWN))
    answers = [tries(wanted, call("cancel_order", order_id="A-9999")), "It is cancelled."]
    run = w.ask("shop", "cancel it", answers)
    [shown] = w.waiting(run)
    yield
    assert w.api.run(run["id"])["waiting_for"] == [shown]
    answer = w.api.decide(run["id"], shown["call_id"], "approve")
    assert answer.status_code == 200
    yield
    w.ended(run, "It is cancelled.")
    [requested] = [event.data for event in w.api.events(run["id"]) if event.type == "approval.requested"]
    assert requested["arguments"] == shown["arguments"] == answer.json()["arguments"] == SHOWN
    [line] = w.ledger("cancel", run)
    assert (line["call"], line["arguments"]) == (shown["call_id"], SHOWN)
    requests = w.requests("cancel it")
    assert len(requests) == 2, "the turn was asked for once"
    [said] = [one for one in requests[-1].messages if isinstance(one, AssistantMessage)]
    assert [one.id for one in said.calls] == [shown["call_id"]]
    assert "They want it cancelled." in (said.kept or ""), "reasoning is given back as it came"


# -- O12


def several_in_one_reply(how: str) -> Case:
    """One plain call and two that need approval, decided in each order across a crash."""

    def case(w: World) -> Iterator[None]:
        orders = ("A-1002", "A-1002") if how == "twins" else ("A-1001", "A-1002")
        batch = reply(
            thinking("Three things.", redacted=how == "twins"),
            "I look and cancel.",
            call("lookup", order_id="A-1001"),
            *(call("cancel_order", order_id=order) for order in orders),
        )
        run = w.ask("shop", "do it", [batch, "That is all."])
        one, two = w.waiting(run)
        assert (one["arguments"]["order_id"], two["arguments"]["order_id"]) == orders
        before, after = {"one first": ([one], [two]), "both later": ([], [one, two])}.get(how, ([two], [one]))
        decisions = {one["call_id"]: "decline", two["call_id"]: "approve"}

        def decide(which: list[Any]) -> None:
            for wanted in which:
                answer = w.api.decide(run["id"], wanted["call_id"], decisions[wanted["call_id"]])
                assert answer.status_code == 200, answer.text

        decide(before)
        if two in before:
            w.until(lambda: w.ledger("cancel", run, call=two["call_id"]))
        w.until(lambda: w.api.run(run["id"])["status"] == "waiting")
        assert w.api.run(run["id"])["waiting_for"] == after
        assert len(w.requests("do it")) == 1
        yield
        assert w.api.run(run["id"])["waiting_for"] == after
        decide(after)
        yield
        w.ended(run, "That is all.")
        [looked] = w.ledger("lookup", run)
        [cancelled] = w.ledger("cancel", run)
        assert cancelled["call"] == two["call_id"]
        _, told = w.requests("do it")
        assert [(result.call_id, result.content) for result in results_in(told)] == [
            (looked["call"], "A-1001 is there"),
            (one["call_id"], DECLINED),
            (two["call_id"], f"{orders[1]} is cancelled"),
        ]

    return case


# -- X15


def poses_as_instructions(w: World) -> Iterator[None]:
    """What a tool says stays the content of its own result, in both formats, and decides nothing."""
    run = w.ask(
        "shop", "read it", [reply(call("poison"), call("poisoned"), call("cancel_order", order_id="A-1")), "No."]
    )
    [wanted] = w.waiting(run)
    yield
    assert w.api.run(run["id"])["waiting_for"] == [wanted]
    assert w.api.decide(run["id"], wanted["call_id"], "decline").status_code == 200
    yield
    w.ended(run, "No.")
    asked, told = w.requests("read it")
    assert (asked.instructions, asked.tools) == (told.instructions, told.tools)
    assert told.messages[0] == asked.messages[0]
    assert [type(one).__name__ for one in told.messages[1:]] == ["AssistantMessage", *["ToolResult"] * 3]
    text, value = (one["result"] for one in w.calls(run)[:2])
    assert text == "\n".join(value["content"])
    results = results_in(told)
    assert (results[0].content, results[2].content) == (text, DECLINED)
    assert w.errors(results[:2]) in (None, [False, False])
    events = {one.data["call_id"]: one.data for one in w.api.events(run["id"]) if one.type == "tool.completed"}
    assert events[results[0].call_id]["result"] == text
    assert events[results[1].call_id]["result"] == value
    assert w.ledger("cancel", run) == []
    assert last_text(w.go_on(run)).endswith("go on")


CASES: dict[str, Case] = {
    **{
        f"O08 {point}, {'after' if killed else 'before'} a kill": cancelled_at(point, killed_first=killed)
        for point in POINTS
        for killed in (False, True)
    },
    **{
        f"O09 {agent}, {typed}": written_while_it_waits(agent, typed)
        for agent in ("shop", "queueing-shop", "rejecting-shop")
        for typed in (INSTEAD, "approve")
    },
    **{
        f"O10 {tool}": declined(tool)
        for tool in ("cancel_order", "cancel_sync", "cancel_whole", "cancel_if", "cancel_method", "ask_clerk")
    },
    "O11": approved_as_shown,
    **{f"O12 {how}": several_in_one_reply(how) for how in ("two first", "one first", "both later", "twins")},
    "X15": poses_as_instructions,
}
