"""O17 to O23 and X07: schemas, values, texts and bad tools, whatever the wire format, with a kill between."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from amoxi_py.ports.chat_model import ToolSpec
from amoxi_py.testing import call, fail, raw_call, reply
from wire_world import Case, World, results_in

# -- O17, O18, O19: what the model is told of tools, and what they get

TYPES = [
    "Line", "Line", "Line", "Card", "Size", "str", "date", "datetime", "timedelta", "UUID", "Decimal", "set", "tuple",
    "Tree", "None", "None", "3", "[]",
]  # fmt: skip
RIGHT: dict[str, Any] = {
    "line": {"sku": "S"},
    "lines": [{"sku": "S", "count": 2}],
    "by_name": {"a": {"sku": "S"}},
    "pay": {"kind": "card", "number": "4711"},
    "size": "small",
    "mode": "fast",
    "on": "2026-01-31",
    "at": "2026-01-31T12:30:00+02:00",
    "took": "PT1H30M",
    "id": "00000000-0000-0000-0000-000000000005",
    "price": "1.10",
    "tags": ["a", "b"],
    "pair": [1, "two"],
    "tree": {"name": "root", "children": [{"name": "leaf"}]},
    "most": None,
}
WRONG: dict[str, dict[str, Any]] = {
    "size": {"size": "huge"},
    "line": {"line": None},
    "most": {"most": "many"},
    "pay": {"pay": {"kind": "cheque"}},
    "many": {"many": 0},
    "tree": {"tree": {"name": "root", "children": [{"name": 5}]}},
    "colour": {"colour": "red"},
}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in RIGHT.items() if key != name}


def typed(name: str) -> Case:
    """A tool of all types in a module with or without postponed annotations."""

    def case(w: World) -> Iterator[None]:
        calls = [
            call(name, **RIGHT),
            call(name, **{**RIGHT, "line": json.dumps(RIGHT["line"])}),
            *(call(name, **{**RIGHT, **wrong}) for wrong in WRONG.values()),
            call(name, **without("most")),
        ]
        run = w.ask("giver", "take them", [reply(*calls), "Done."])
        w.ended(run, "Done.")
        yield
        yield
        request = w.go_on(run)
        right, as_text, *wrong = results_in(request)
        assert json.loads(right.content) == TYPES
        assert json.loads(as_text.content) == TYPES, "an object in a text"
        assert len(wrong) == len(WRONG) + 1
        for field, result in zip([*WRONG, "most"], wrong, strict=True):
            assert result.content.startswith(f"The arguments do not fit: {field}"), result
        assert w.errors(results_in(request)) in (None, [False, False] + [True] * len(wrong))
        specs = {spec.name: spec for spec in request.tools}
        own = specs[name].parameters
        assert own == specs["plain_types"].parameters
        assert sorted(own["required"]) == sorted(RIGHT)
        assert set(own["properties"]) == {*RIGHT, "extra", "many", "names"}, "the context is in no schema"
        assert "$ref" in json.dumps(own), "the tree ends"

    return case


def texts_of(spec: ToolSpec) -> tuple[str, dict[str, str]]:
    return spec.description, {key: part["description"] for key, part in spec.parameters["properties"].items()}


def documented(w: World) -> Iterator[None]:
    run = w.ask("giver", "hello", ["Hello."])
    w.ended(run)
    yield
    yield
    specs = {spec.name: spec for spec in w.go_on(run).tools}
    text, fields = texts_of(specs["as_google"])
    assert text == "Find what was ordered — auf Deutsch: „Größe“."
    assert fields["order_id"].startswith("The order's number: see https://shop.example/a:b")
    assert fields["order_id"].rstrip().endswith("- or one that begins with B")
    assert texts_of(specs["as_numpy"]) == texts_of(specs["as_annotated"]) == (text, fields)


# -- O20

GIVEN: dict[str, Any] = {
    "decimal": {"price": "1.10"},
    "datetime": ["2026-01-31T12:30:00Z"],
    "uuid": "00000000-0000-0000-0000-000000000005",
    "set": [7],
    "bytes": "AP-A",
    "model": {"order_id": "A-1", "lines": []},
    "nan": [None, {"deep": None}],
    "minus zero": [-0.0, 0.1],
    "big": {"big": 10**30, "id": 2512292042121000001},
    "none": None,
    "empty": "",
    "blank": " \n",
}
REFUSED = ["object", "generator", "exception", "tuple keys", "itself"]


def odd_values(w: World) -> Iterator[None]:
    calls = [*(call("give", kind=kind) for kind in [*GIVEN, *REFUSED])]
    echo = raw_call("echo_id", '{"record_id": 2512292042121000001, "ratio": 0.1}')
    run = w.ask("giver", "give all", [reply(*calls, echo), "Done."])
    w.ended(run, "Done.")
    before, told = w.calls(run), results_in(w.go_on(run, "before"))
    yield
    yield
    assert w.calls(run) == before, "a restart changes nothing"
    after = results_in(w.go_on(run, "after"))
    assert after == told == results_in(w.requests("give all")[-1]), "each request tells the same"
    stream = w.api.get_path(f"/runs/{run['id']}/events")
    stream.content.decode("ascii")
    events = [strict_json(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
    completed = {one["call_id"]: one for one in events if "is_error" in one}
    for kind, stored, sent in zip([*GIVEN, *REFUSED], before[:-1], after[:-1], strict=True):
        assert completed[stored["call_id"]]["result"] == stored["result"], kind
        assert stored["status"] == ("failed" if kind in REFUSED else "done"), (kind, stored)
        assert w.errors([sent]) in (None, [kind in REFUSED]), (kind, sent)
        if kind in REFUSED:
            assert sent.content == stored["result"]
            assert len(sent.content) > 10, (kind, sent)
            continue
        assert repr(stored["result"]) == repr(GIVEN[kind]), (kind, stored)
        if not isinstance(GIVEN[kind], str):
            assert repr(strict_json(sent.content)) == repr(GIVEN[kind]), (kind, sent)
    record = {"record_id": 2512292042121000001, "text": "2512292042121000001", "ratio": 0.1}
    assert before[-1]["result"] == strict_json(after[-1].content) == record


def strict_json(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


# -- O21 and X07

BAD = {"nul": "\x00", "high": "\ud800", "low": "\udfff", "pair": "\U0001f600"}
CLEAN = {**dict.fromkeys(BAD, "\ufffd"), "pair": "\U0001f600"}


def carried(kind: str) -> Case:
    """A character that no store and no provider takes, at every place where text comes in."""

    def case(w: World) -> Iterator[None]:
        bad, clean = BAD[kind], CLEAN[kind]
        halves = ("say\ud83d", "\ude00so") if kind == "pair" else (f"say{bad}", "so")
        script = [
            reply(*halves, call("carry", text=f"argument{bad}end", kind=kind), call("refuse", kind=kind)),
            reply(raw_call(f"no{bad}tool", "{}"), call("cancel_order", order_id=f"A{bad}1")),
            f"final{bad}word",
        ]
        # a client may send it as an escape; in UTF-8 half a character does not exist
        body = json.dumps({"message": f"{w.name}: begin {bad}end"})
        w.script(f"begin {clean}end", script)
        headers = {"content-type": "application/json"}
        answer = w.api.http.post("/agents/giver/runs", content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        run = answer.json()
        [wanted] = w.waiting(run)
        yield
        decision = json.dumps({"decision": "decline", "reason": f"because{bad}so"})
        path = f"/runs/{run['id']}/approvals/{wanted['call_id']}"
        assert w.api.http.post(path, content=decision, headers=headers).status_code == 200
        yield
        w.ended(run, f"final{clean}word")
        w.go_on(run, "second")
        request = w.go_on(run, "third")
        told = json.dumps([repr(request.messages), w.api.events(run["id"])], default=repr, ensure_ascii=False)
        messages = w.api.messages("giver", run["conversation_id"])
        stored = json.dumps(messages, ensure_ascii=False)
        stored.encode("utf-8")
        assert "\x00" not in stored
        assert "\\u0000" not in stored
        for text in ("begin {}end", "say{}so", "argument{}end", "sorry{}no", "because{}so", "final{}word", "value{}"):
            assert text.format(clean) in stored, text
            assert text.format(clean) in told, text
        carry = next(one for one in w.calls(run) if one["tool"] == "carry")
        assert carry["result"] == {
            f"key{clean}": {f"nested{clean}": f"value{clean}"},
            "argument": f"argument{clean}end",
        }
        [progress] = [one.data["text"] for one in w.api.events(run["id"]) if one.type == "tool.progress"]
        assert progress == f"on{clean}way"
        assert [line["same"] for line in w.ledger("carried", run)] == [True], "a step gives back what it took"

    return case


# -- O22

LARGEST_EVENT = 100_000


def huge_result(kind: str) -> Case:
    """Two megabytes never reach the model, which is told where they are and reads on there."""

    def case(w: World) -> Iterator[None]:
        run = w.ask("giver", "export", [call("export", kind=kind), "It is long."])
        w.ended(run, "It is long.")
        w.go_on(run, "one more")
        yield
        yield
        [stored] = w.calls(run)
        cut = stored["result"]
        assert "[cut: " in cut[-400:], cut[-400:]
        assert "read_result reads" in cut[-400:]
        assert len(json.dumps(cut)) <= 32 * 1024
        file = next(word for word in cut.split() if word.startswith("file_")).rstrip(",")
        reads = [call("read_result", file_id=file, start=len(cut[: cut.rindex("\n[cut: ")].encode())), "I read on."]
        again = w.ask("giver", "read on", reads, conversation_id=run["conversation_id"])
        w.ended(again, "I read on.")
        [read] = w.calls(again)
        assert read["status"] == "done", read
        assert "\ufffd" not in json.dumps([read, cut], ensure_ascii=False), "no character is split"
        w.go_on(run, "and more")
        stream = w.api.get_path(f"/runs/{run['id']}/events").text
        assert max(map(len, stream.splitlines())) < LARGEST_EVENT

    return case


def too_long_for_the_model(w: World) -> Iterator[None]:
    run = w.ask("giver", "too much", [fail(400, text="too long", reason="context_length_exceeded")])
    w.ended(run, status="failed")
    yield
    assert w.api.run(run["id"])["error"]["code"] == "model_context_too_long"
    yield
    assert len(w.requests("too much")) <= 2, "it is not asked for ever"
    w.go_on(run)


# -- O23


def raising(w: World) -> Iterator[None]:
    kinds = ["exit", "interrupt", "generator exit", "cancelled", "group", "mute"]
    run = w.ask("shop", "throw", [reply(*(call("throw", kind=kind) for kind in kinds), call("second")), "Done."])
    w.until(lambda: w.ledger("second", run))
    w.until(lambda: [one["status"] for one in w.calls(run)] == ["failed"] * len(kinds) + ["started"])
    yield
    w.folder.open_gate(run["conversation_id"])
    yield
    w.ended(run, "Done.")
    results = results_in(w.requests("throw")[-1])
    assert [one.content for one in results] == [*["The tool failed."] * len(kinds), "the second result"]
    assert w.errors(results) in (None, [True] * len(kinds) + [False])
    assert len(w.ledger("second", run)) == 2
    assert len({line["call"] for line in w.ledger("second", run)}) == len(w.ledger("once", run)) == 1


def blocked_thread(w: World) -> Iterator[None]:
    """A thread that blocks is cancelled at once, and what it does later changes nothing; another is taken up."""
    gone = w.ask("shop", "block and be gone", [call("block"), "Never."])
    kept = w.ask("shop", "block and be killed", [call("block"), "Done."])
    w.until(lambda: w.ledger("block", gone))
    w.until(lambda: w.ledger("block", kept))
    begun = time.monotonic()
    assert w.api.cancel(gone["id"])["status"] == "cancelled"
    assert time.monotonic() - begun < 1 + 29, "a second, and the rest for a busy machine"
    told = w.types(gone)
    assert told[-1] == "run.cancelled"
    w.folder.open_gate(gone["conversation_id"])
    w.until(lambda: w.ledger("unblocked", gone))
    yield
    w.folder.open_gate(kept["conversation_id"])
    yield
    w.ended(kept, "Done.")
    assert len(w.ledger("block", kept)) == 2
    assert len(w.ledger("after the block", kept)) == 1
    assert w.ledger("after the block", gone) == []
    assert w.types(gone) == told
    [result] = results_in(w.go_on(gone))
    assert "stopped while it was being done" in result.content


CASES: dict[str, Case] = {
    "O17 plain": typed("plain_types"),
    "O17 postponed": typed("postponed_types"),
    "O19": documented,
    "O20": odd_values,
    **{f"O21 {kind}": carried(kind) for kind in BAD},
    **{f"O22 {kind}": huge_result(kind) for kind in ("text", "rows", "line")},
    "O22 too long": too_long_for_the_model,
    "O23 raising": raising,
    "O23 blocking": blocked_thread,
}
