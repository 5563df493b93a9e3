"""What must hold when the chaos is over: of what was told, of the ledger, of the rows, and of the servers' logs."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from chaos_shop import STORIES
from customers import ENDS, FINAL, Customer, Told

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Asks the store's database; `@` stands before the names of tables."""

_UNSAFE = {"ship": "shipped", "bill": "billed", "cancel_order": "cancelled"}
_UNKNOWN = "outcome is unknown"


def problems_of(
    customers: list[Customer], folder: Path, ask: Ask, logs: Mapping[str, str], booked: list[tuple[Any, ...]] | None
) -> list[str]:
    """Return every promise that was broken; `booked` is what the app has put into a table of its own, if it has one."""
    ledger = read_ledger(folder)
    found = [problem for customer in customers for problem in _of_story(customer)]
    found += _of_effects(customers, ledger)
    found += _of_rows(ask, ledger, len(customers))
    if booked is not None:
        found += _of_bookings(customers, booked)
    found += _of_logs(logs)
    return found


def read_ledger(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the ledger in order."""
    file = folder / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


# -- what was told


def _of_story(customer: Customer) -> Iterable[str]:
    who = f"customer {customer.number} ({customer.agent}, {customer.kind}, {customer.run_id})"
    if customer.status not in FINAL:
        yield f"{who}: the run has not ended, it is {customer.status!r}; told {_types(customer.told)}"
        return
    may_be = {"completed"}
    if customer.cancels or customer.agent == "fickle":
        may_be.add("cancelled")
    if customer.status not in may_be:
        yield f"{who}: the run is {customer.status}, {customer.log[-1].data}"
    live, later = _lasting(customer.told), _lasting(customer.log)
    if live != later:
        yield f"{who}: live {_types(live)} and later {_types(later)} differ"
    for name, told in (("live", customer.told), ("later", customer.log)):
        for problem in _of_told(told):
            yield f"{who}: {name}: {problem}; {_types(told)}"
    if customer.log and customer.log[-1].type != f"run.{customer.status}":
        yield f"{who}: the log ends with {customer.log[-1].type}, the run is {customer.status}"
    if customer.status == "completed":
        called = [event.data["tool"] for event in customer.log if event.type == "tool.called"]
        story = [name for turn in STORIES[customer.kind] for name in turn]
        if called != story:
            yield f"{who}: the calls were {called}"
        if not (customer.output or "").endswith("Done."):
            yield f"{who}: the output is {customer.output!r}"


def _lasting(told: list[Told]) -> list[Told]:
    return [event for event in told if event.type not in ("message.delta", "message.discarded")]


def _types(told: list[Told]) -> list[str]:
    return [f"{event.id}:{event.type}" for event in told]


def _of_told(told: list[Told]) -> Iterable[str]:
    ids = [event.id for event in told]
    if ids != sorted(set(ids)):
        yield "ids do not grow"
    types = [event.type for event in told]
    if types[:1] != ["run.queued"]:
        yield "does not begin with run.queued"
    if [kind for kind in types if kind in ENDS] != types[-1:]:
        yield "has not one end, at the end"
    calls = {
        kind: Counter(e.data["call_id"] for e in told if e.type == f"tool.{kind}") for kind in ("called", "completed")
    }
    if calls["called"] != calls["completed"] or any(count > 1 for count in calls["called"].values()):
        yield f"calls {calls}"
    texts: dict[str, str] = {}
    finished: set[str] = set()
    for event in told:
        data = event.data
        if event.type == "message.delta":
            text = texts.get(data["message_id"], "")
            if data["message_id"] in finished or data["offset"] != len(text):
                yield f"a piece of a text at {data['offset']} after {text!r}"
            texts[data["message_id"]] = text + data["text"]
        elif event.type == "message.discarded":
            texts.pop(data["message_id"], None)
        elif event.type == "message.completed":
            message = data["message"]
            if message["id"] in finished or not message["text"].startswith(texts.pop(message["id"], "")):
                yield f"the message {message['id']} is told twice, or is not what its pieces were"
            finished.add(message["id"])
    if texts:
        yield f"pieces of texts that nobody finished: {texts}"


def _of_bookings(customers: list[Customer], booked: list[tuple[Any, ...]]) -> Iterable[str]:
    """Hold what is in the app's own tables against the outcomes of `ctx.transaction`."""
    rows = dict(booked)
    counts = Counter(call for call, _ in booked)
    for customer in customers:
        called = {event.data["call_id"]: event.data["tool"] for event in customer.log if event.type == "tool.called"}
        for event in customer.log:
            if event.type != "tool.completed" or called.get(event.data["call_id"]) != "book":
                continue
            call, is_error = event.data["call_id"], event.data["is_error"]
            count = counts.pop(call, 0)
            if count > 1 or (not is_error and (count == 0 or rows[call] != event.data["result"])):
                yield f"{call} was booked {count} times; its result: {event.data}"
    for call, count in counts.items():
        yield f"{call} was booked {count} times, and no log knows of the call"


# -- what was done


def _of_effects(customers: list[Customer], ledger: list[dict[str, Any]]) -> Iterable[str]:
    for line in ledger:
        if line["what"] == "refused":
            yield f"a provider would have refused: {line['problems']}"
    lines: dict[str, Counter[str]] = defaultdict(Counter)
    for line in ledger:
        if "call" in line:
            lines[line["what"]][line["call"]] += 1
    for customer in customers:
        called = {event.data["call_id"]: event.data["tool"] for event in customer.log if event.type == "tool.called"}
        for event in customer.log:
            if event.type == "tool.completed" and called.get(event.data["call_id"]) in _UNSAFE:
                call, tool = event.data["call_id"], called[event.data["call_id"]]
                count, is_error = lines[_UNSAFE[tool]].pop(call, 0), event.data["is_error"]
                if count > 1 or (count == 0 and not is_error):
                    yield f"{tool} of {call} was done {count} times; its result: {event.data}"
                if is_error and count == 1 and _UNKNOWN not in json.dumps(event.data["result"]):
                    yield f"{tool} of {call} was done, and the model was told {event.data['result']}"
    for what in _UNSAFE.values():
        for call, count in lines[what].items():
            yield f"{call} was {what} {count} times, and no log knows of the call"
    yield from _of_steps(customers, ledger)


def _of_steps(customers: list[Customer], ledger: list[dict[str, Any]]) -> Iterable[str]:
    claims = {
        customer.run_id: sum(event.type in ("run.started", "run.resumed") for event in customer.log)
        for customer in customers
    }
    effects: dict[tuple[str, str], list[str]] = defaultdict(list)
    returned: dict[tuple[str, str], str] = {}
    for line in ledger:
        place = (line.get("call", ""), line.get("step", ""))
        if line["what"] == "effect":
            if place in returned:
                yield f"step {place} was done again after it had been recorded: {line}"
            effects[place].append(line["value"])
            if len(effects[place]) > claims.get(line["run"], 0):
                yield f"step {place} was done {len(effects[place])} times in {claims.get(line['run'])} executions"
        elif line["what"] == "returned" and (
            returned.setdefault(place, line["value"]) != line["value"] or line["value"] not in effects[place]
        ):
            yield f"step {place} returned {returned[place]} and {line['value']} of {effects[place]}"


# -- what is stored


def _of_rows(ask: Ask, ledger: list[dict[str, Any]], runs: int) -> Iterable[str]:
    ((count,),) = ask("SELECT count(*) FROM @run")
    if count != runs:
        yield f"{count} runs are stored, {runs} were sent"
    for row in ask(
        "SELECT id, status, fence, wake_at FROM @run WHERE status NOT IN ('completed', 'cancelled', 'failed')"
    ):
        yield f"run {row} is open"
    for row in ask("SELECT run, turn, n, status FROM @tool_call WHERE status IN ('open', 'started')"):
        yield f"call {row} is open"
    for row in ask("SELECT run, count(*) FROM @event WHERE type IN (13, 14, 15) GROUP BY run HAVING count(*) <> 1"):
        yield f"run {row[0]} has {row[1]} ends"
    for row in ask(
        "SELECT run, turn, n, type, count(*) FROM @event WHERE type IN (7, 9) GROUP BY 1, 2, 3, 4 HAVING count(*) > 1"
    ):
        yield f"event {row} is there more than once"
    for row in ask("SELECT key FROM @event WHERE type = 4"):
        yield f"the piece of a message {row} was left"
    for row in ask(
        "SELECT c.id, c.last_seq, max(e.seq) FROM @conversation AS c JOIN @event AS e ON e.conversation = c.key "
        "GROUP BY c.id, c.last_seq HAVING max(e.seq) <> c.last_seq"
    ):
        yield f"conversation {row}: the last number is not that of its last event"
    stored = {
        (f"call_{run[4:]}_{turn}_{n}", name): json.loads(value)
        for run, turn, n, name, value in ask(
            "SELECT r.id, s.turn, s.n, s.name, s.value FROM @step AS s JOIN @run AS r ON r.key = s.run"
        )
    }
    for line in ledger:
        if line["what"] == "returned" and stored.get((line["call"], line["step"])) != line["value"]:
            yield f"a step returned {line}, and {stored.get((line['call'], line['step']))} is stored"


# -- what was printed


def _of_logs(logs: Mapping[str, str]) -> Iterable[str]:
    for who, text in logs.items():
        if "Traceback" in text:
            at = text.index("Traceback")
            yield f"{who} printed {text[max(0, at - 300) : at + 3000]}"


def lines_of_logs(logs: Mapping[str, str]) -> Counter[str]:
    """Count what servers printed, without what differs from line to line."""
    found: Counter[str] = Counter()
    for text in logs.values():
        for line in text.splitlines():
            plain = re.sub(r"\b(run|conv|call|worker|msg)_\w+", r"\1_X", line)
            found[re.sub(r"\d+(\.\d+)?", "N", plain)[:170]] += 1
    return found
