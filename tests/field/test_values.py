"""O20, O21, X07: values that JSON has no form for, and text that no store takes, by one rule at every place."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, ToolResult, UserMessage
from amoxi_py.testing import call, raw_call, reply


def strict_json(text: str | bytes) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def strict_events(api: Any, run_id: str) -> list[dict[str, Any]]:
    """The data of a run's events, read by the strictest reader there is."""
    answer = api.get_path(f"/runs/{run_id}/events")
    assert answer.status_code == 200
    answer.content.decode("ascii")
    return [strict_json(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


ODD = '''
import dataclasses, enum, uuid
from collections import deque, namedtuple, OrderedDict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from pydantic import BaseModel
from amoxi_py import agent, tool


class Colour(enum.Enum):
    RED = "red"


class Model(BaseModel):
    price: Decimal
    ratio: float


@dataclasses.dataclass
class Data:
    at: datetime
    inner: Any


Point = namedtuple("Point", "x y")
itself = [1]
itself.append(itself)
twisted = {}
twisted["in"] = {"side": twisted}


class SaysNothing:
    def __repr__(self):
        raise ValueError("nothing")


def make(kind):
    moment = datetime(2026, 1, 31, 12, 30, tzinfo=timezone.utc)
    return {
        "decimal": lambda: Decimal("1.10"),
        "datetime": lambda: moment,
        "date": lambda: date(2026, 1, 31),
        "uuid": lambda: uuid.UUID(int=5),
        "set": lambda: {7},
        "frozenset": lambda: frozenset({"a"}),
        "bytes": lambda: bytes([0, 255, 128]),
        "dataclass": lambda: Data(moment, [Decimal("2.50")]),
        "model": lambda: Model(price=Decimal("3.30"), ratio=float("nan")),
        "enum": lambda: Colour.RED,
        "tuple": lambda: (1, "two"),
        "namedtuple": lambda: Point(1, 2),
        "deque": lambda: deque([1, 2]),
        "path": lambda: Path("a/b"),
        "ordered": lambda: OrderedDict(b=1, a=2),
        "nan": lambda: float("nan"),
        "inf": lambda: [float("inf"), {"deep": float("-inf")}],
        "minus_zero": lambda: -0.0,
        "big": lambda: 10**30,
        "big_negative": lambda: [-(2**63) - 1, 2**64, 9007199254740993],
        "tenth": lambda: [0.1, 1e-7, 1e22, 5e-324],
        "int_keys": lambda: {1: "a", 2: "b"},
        "none": lambda: None,
        "empty": lambda: "",
        "generator": lambda: (number for number in range(3)),
        "iterator": lambda: iter([1, 2]),
        "object": lambda: object(),
        "exception": lambda: {"error": ValueError("no")},
        "function": lambda: [make],
        "class": lambda: Model,
        "tuple_keys": lambda: {(1, 2): "a"},
        "same_keys": lambda: {1: "a", "1": "b"},
        "itself": lambda: itself,
        "twisted": lambda: twisted,
        "deep": lambda: deep(),
        "huge": lambda: 10**5000,
        "mute": lambda: {"x": SaysNothing()},
        "complex": lambda: complex(1, 2),
    }[kind]()


def deep():
    value = []
    for _ in range(5000):
        value = [value]
    return value


@tool
def give(kind: str):
    """Give something odd."""
    return make(kind)


@tool
def give_any(kind: str) -> Any:
    """Give something odd as anything."""
    return make(kind)


@tool
async def give_list(kind: str) -> list:
    """Give something odd in a list."""
    return [make(kind)]


@tool
def give_model(kind: str) -> Model:
    """Give something odd in place of a model."""
    return make(kind)


@tool
def echo_id(record_id: int, ratio: float = 0.5) -> dict[str, Any]:
    """Give an id back."""
    return {"record_id": record_id, "text": str(record_id), "ratio": ratio}


@tool(needs_approval=True)
def echo_after(record_id: int) -> dict[str, Any]:
    """Give an id back when a person has looked at it."""
    return {"record_id": record_id, "text": str(record_id)}


@agent(tools=[give, give_any, give_list, give_model, echo_id, echo_after])
class Giver:
    """You give."""
'''
PLAIN: dict[str, Any] = {
    "decimal": "1.10",
    "datetime": "2026-01-31T12:30:00Z",
    "date": "2026-01-31",
    "uuid": "00000000-0000-0000-0000-000000000005",
    "set": [7],
    "frozenset": ["a"],
    "bytes": "AP-A",
    "dataclass": {"at": "2026-01-31T12:30:00Z", "inner": ["2.50"]},
    "model": {"price": "3.30", "ratio": None},
    "enum": "red",
    "tuple": [1, "two"],
    "namedtuple": [1, 2],
    "deque": [1, 2],
    "path": "a/b",
    "ordered": {"b": 1, "a": 2},
    "nan": None,
    "inf": [None, {"deep": None}],
    "minus_zero": -0.0,
    "big": 10**30,
    "big_negative": [-(2**63) - 1, 2**64, 9007199254740993],
    "tenth": [0.1, 1e-7, 1e22, 5e-324],
    "int_keys": {"1": "a", "2": "b"},
    "none": None,
    "empty": "",
    "complex": "1+2j",
}
REFUSED = [
    "generator", "iterator", "object", "exception", "function", "class", "tuple_keys", "same_keys", "itself",
    "twisted", "deep", "huge", "mute",
]  # fmt: skip
ID = 2512292042121000001


def give_what_is_named(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if isinstance(last, ToolResult):
        return "Done."
    name, _, rest = last.text.partition(" ")  # type: ignore[union-attr]
    return raw_call(name, rest) if rest.startswith("{") else call(name, kind=rest)


def result_told(model: Any, run: dict[str, Any], api: Any) -> Any:
    """A call's result, after a look at each place that tells it: the stream, the conversation, the model."""
    assert run["status"] == "completed", (run["error"], run)
    [completed] = [data for data in strict_events(api, run["id"]) if "is_error" in data]
    answer = api.get_path(f"/agents/giver/conversations/{run['conversation_id']}")
    [stored] = [call for message in strict_json(answer.content)["items"] for call in message["calls"]]
    assert stored["result"] == completed["result"]
    assert repr(stored["result"]) == repr(completed["result"]), "1 and 1.0 and True are three values"
    assert stored["status"] == ("failed" if completed["is_error"] else "done")
    bodies = [strict_json(body) for body in model.bodies if stored["call_id"].encode() in body]
    contents = {
        part["content"] for body in bodies for part in body["messages"] if part.get("tool_call_id") == stored["call_id"]
    }
    [content] = contents  # the same in every later request
    content, _, _ = content.partition("\n[A person changed the arguments")
    if not isinstance(completed["result"], str):
        assert repr(strict_json(content)) == repr(completed["result"]), "the model is told the same"
    return completed["result"], completed["is_error"], content


@pytest.mark.crash
def test_odd_results_are_plain_json_or_one_clear_error_at_every_place_and_after_a_restart(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model(give_what_is_named)
    folder = field_app(ODD)
    server = start(folder, env=model_env(model))
    api = client(server)
    cases = [
        *((tool, kind) for kind in (*PLAIN, *REFUSED) for tool in ("give", "give_any", "give_list")),
        *(("give_model", kind) for kind in ("decimal", "nan", "none", "object", "tuple")),
        ("give_model", "model"),
    ]
    runs = {case: api.submit("giver", " ".join(case))["id"] for case in cases}
    told: dict[tuple[str, str], Any] = {}
    for case, run_id in runs.items():
        tool, kind = case
        told[case] = result_told(model, api.until_status(run_id), api)
        result, is_error, content = told[case]
        if tool == "give_model" and kind != "model":
            assert is_error, case
            assert "does not fit the return type" in content, (case, content)
        elif kind in REFUSED:
            assert is_error, case
            assert "cannot be stored" in content, (case, content)
            assert len(content) < 1000, (case, "an error that a model can read")
        else:
            expected = [PLAIN[kind]] if tool == "give_list" else PLAIN[kind]
            assert not is_error, (case, content)
            assert repr(result) == repr(expected), case
    server.kill9()
    api = client(start(folder, env=model_env(model)))
    assert {case: result_told(model, api.run(run_id), api) for case, run_id in runs.items()} == told


@pytest.mark.crash
def test_whole_numbers_keep_all_their_digits_from_the_model_through_a_tool_and_a_person_and_back(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model(give_what_is_named)
    folder = field_app(ODD)
    server = start(folder, env=model_env(model))
    api = client(server)
    for number in (ID, -ID, 2**53 + 1, 10**30):
        run = api.submit("giver", f'echo_id {{"record_id": {number}, "ratio": 0.1}}', wait=10)
        result, is_error, content = result_told(model, run, api)
        assert not is_error
        assert result == {"record_id": number, "text": str(number), "ratio": 0.1}
        assert str(number) in content
    for bad in ("NaN", "Infinity", "1e999", '"NaN"', "true", "1.5"):
        result, is_error, content = result_told(
            model, api.submit("giver", f'echo_id {{"record_id": {bad}}}', wait=10), api
        )
        assert is_error, (bad, result)
        assert "arguments" in content or "record_id" in content, (bad, content)
    asked = api.until_status(api.submit("giver", f'echo_after {{"record_id": {ID}}}')["id"], "waiting")
    [waiting] = asked["waiting_for"]
    assert waiting["arguments"] == {"record_id": ID}
    server.kill9()
    api = client(start(folder, env=model_env(model)))
    # what is sent is the text of the number itself: a reader that makes a float of it would act on another record
    answer = api.http.post(
        f"/runs/{asked['id']}/approvals/{waiting['call_id']}",
        content=f'{{"decision": "approve", "arguments": {{"record_id": {ID + 2}}}}}',
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 200, answer.text
    result, is_error, _ = result_told(model, api.until_status(asked["id"]), api)
    assert (result, is_error) == ({"record_id": ID + 2, "text": str(ID + 2)}, False)


# -- O21 and X07: characters that no store and no provider takes

CARRIER = '''
from typing import Any
from amoxi_py import ToolContext, ToolError, agent, step, tool
from .ledger import note

BAD = {"nul": "\\x00", "high": "\\ud800", "low": "\\udfff", "reversed": "\\udfff\\ud800", "pair": "\\U0001f600"}


def give(value):
    return value


def fail(text):
    raise ValueError(text)


@tool
async def carry(text: str, kind: str, ctx: ToolContext) -> dict[str, Any]:
    """Carry text."""
    c = BAD[kind]
    ctx.progress(f"on{c}way")
    value = {f"key{c}": [f"value{c}"], "plain": c}
    same = await ctx.step("give", give, value)
    try:
        await ctx.step("fail", fail, f"step{c}error")
        failure = ""
    except Exception as error:
        failure = str(error)
    note("carried", ctx, same=same == value, argument=text)
    return {f"key{c}": {f"nested{c}": f"value{c}"}, "argument": text, "failure": failure}


@tool
def plain(kind: str) -> str:
    """Give text."""
    return f"plain{BAD[kind]}text"


@tool
def refuse(kind: str) -> str:
    """Refuse."""
    raise ToolError(f"sorry{BAD[kind]}no")


@tool(needs_approval=True)
def ask(text: str) -> str:
    """Ask a person."""
    return text


@agent(tools=[carry, plain, refuse, ask])
class Carrier:
    def instructions(self, ctx):
        return "You carry\\x00 text\\ud800."


@agent
class Spoiled:
    """Your docstring has a bad letter: \\x00."""
'''
BAD = {"nul": "\x00", "high": "\ud800", "low": "\udfff", "reversed": "\udfff\ud800", "pair": "\U0001f600"}
CLEAN = {"nul": "\ufffd", "high": "\ufffd", "low": "\ufffd", "reversed": "\ufffd\ufffd", "pair": "\U0001f600"}


def carry_on(request: ModelRequest) -> Any:
    place = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
    said = sum(isinstance(message, AssistantMessage) for message in request.messages[place:])
    text = request.messages[place].text  # type: ignore[union-attr]
    if not text.startswith("begin"):
        return "Yes."
    kind = text.split()[1]
    bad = BAD[kind]
    if said == 0:
        halves = ("say\ud83d", "\ude00so") if kind == "pair" else (f"say{bad}", "so")
        return reply(*halves, call("carry", text=f"argument{bad}end", kind=kind), raw_call(f"no{bad}tool", "{}"))
    if said == 1:
        return reply(call("plain", kind=kind), call("refuse", kind=kind), raw_call("refuse", f'{{"kind": "{bad}"'))
    if said == 2:
        return reply(call("ask", text=f"first{bad}"), call("ask", text=f"second{bad}"))
    return f"final{bad}word"


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
@pytest.mark.crash
def test_a_nul_or_half_a_character_at_any_place_becomes_one_sign_and_the_conversation_goes_on(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model(carry_on)
    folder = field_app(CARRIER)
    server = start(folder, env=model_env(model))
    api = client(server)
    runs: dict[str, dict[str, Any]] = {}
    for kind, bad in BAD.items():
        # a client may send it as an escape; in UTF-8 half a character does not exist
        body = json.dumps({"message": f"begin {kind} {bad}end"})
        answer = api.http.post("/agents/carrier/runs", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 202, answer.text
        waiting = api.until_status(answer.json()["id"], "waiting", "failed", "completed")
        assert waiting["status"] == "waiting", (kind, waiting, strict_events(api, waiting["id"]), server.log()[-3000:])
        first, second = (item["call_id"] for item in waiting["waiting_for"])
        declined = json.dumps({"decision": "decline", "reason": f"because{bad}so"})
        approved = json.dumps({"decision": "approve", "arguments": {"text": f"edited{bad}text"}})
        for call_id, decision in ((first, declined), (second, approved)):
            decided = api.http.post(
                f"/runs/{waiting['id']}/approvals/{call_id}",
                content=decision,
                headers={"content-type": "application/json"},
            )
            assert decided.status_code == 200, decided.text
        runs[kind] = api.until_status(waiting["id"])
        assert runs[kind]["status"] == "completed", (kind, runs[kind], server.log()[-3000:])
        again = api.submit("carrier", "second", conversation_id=runs[kind]["conversation_id"], wait=10)
        assert (again["status"], again["output"]) == ("completed", "Yes.")
    before = {kind: places(api, run) for kind, run in runs.items()}
    server.kill9()
    api = client(start(folder, env=model_env(model)))
    for kind, run in runs.items():
        third = api.submit("carrier", "third", conversation_id=run["conversation_id"], wait=10)
        assert (third["status"], third["output"]) == ("completed", "Yes.")
        after = places(api, run)
        assert after == before[kind]
        clean = CLEAN[kind]
        joined = json.dumps(after, ensure_ascii=False)
        for rest in (
            "begin {} {}end", "argument{1}end", "say{1}so", "plain{1}text", "sorry{1}no", "because{1}so",
            "edited{1}text", "final{1}word", "step{1}error", "first{1}",
        ):  # fmt: skip
            assert rest.format(kind, clean) in joined, (kind, rest)
        carried = next(call for call in calls_of(after) if call["tool"] == "carry")
        assert carried["result"][f"key{clean}"] == {f"nested{clean}": f"value{clean}"}
        for body in model.bodies:
            text = body.decode()
            text.encode("utf-8")
            assert "\\u0000" not in text
            assert "\\ud800" not in text, text[text.index("\\ud800") - 300 :][:400]
    assert [line["same"] for line in folder.ledger("carried")] == [True] * len(BAD), "a step gives back what it took"
    progress = [data["text"] for run in runs.values() for data in strict_events(api, run["id"]) if is_progress(data)]
    assert progress == [f"on{CLEAN[kind]}way" for kind in runs]
    assert api.submit("spoiled", "hello", wait=10)["status"] == "completed"


def is_progress(data: dict[str, Any]) -> bool:
    return "call_id" in data and "text" in data


def calls_of(places: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for message in places["messages"] for call in message["calls"]]


def places(api: Any, run: dict[str, Any]) -> dict[str, Any]:
    """What a reader sees of a run, wherever it looks; no place holds what cannot be stored."""
    found = {
        "run": strict_json(api.get_path(f"/runs/{run['id']}").content),
        "events": strict_events(api, run["id"]),
        "messages": strict_json(api.get_path(f"/agents/carrier/conversations/{run['conversation_id']}").content)[
            "items"
        ],
    }
    found["messages"] = [message for message in found["messages"] if message["run_id"] == run["id"]]
    json.dumps(found, ensure_ascii=False).encode("utf-8")
    assert "\x00" not in json.dumps(found, ensure_ascii=False)
    assert "\\u0000" not in json.dumps(found)
    return found


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_bytes_that_are_no_utf8_are_refused_at_the_door_and_change_nothing(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    api = client(start(field_app(CARRIER), env=model_env(strict_model(carry_on))))
    for body in (
        b'{"message": "\xed\xa0\x80"}',
        b'{"message": "\xff"}',
        b'{"message": "a\x00b"}',
        b"\x00",
        b"\xff\xfe{}",
    ):
        answer = api.http.post("/agents/carrier/runs", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422, (body, answer.text)
        assert answer.json()["code"] == "invalid_json"
    for path in ("/runs/%00", "/runs/run_%00", "/agents/carrier%00/runs", "/runs/%ED%A0%80", "/agents/%FF/runs/x"):
        assert api.get_path(path).status_code == 404, path
    assert api.get_path("/runs").json()["items"] == []


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_ids_numbers_and_names_that_no_store_takes_are_nobodys_or_refused_at_every_route(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    server = start(field_app(CARRIER), env=model_env(strict_model(carry_on)))
    api = client(server)
    run = api.submit("carrier", "hello", wait=10)
    told = api.events(run["id"])
    for bad in ("\x00", "conv_\x00", "\ud800", "x" * 3000):
        for body in (
            {"message": "hello", "conversation_id": bad},
            {"message": "hello", "files": [bad]},
            {bad: "hello"},
        ):
            text = json.dumps(body)
            answer = api.http.post("/agents/carrier/runs", content=text, headers={"content-type": "application/json"})
            assert 400 <= answer.status_code < 500, (body, answer.text)
        decision = json.dumps({"decision": "approve", "reason": bad})
        huge = f"call_{run['id'].removeprefix('run_')}_{10**15}_{10**15}"
        for path in ("/approvals/call_%00", f"/runs/{run['id']}/approvals/%00", f"/approvals/{huge}"):
            answer = api.http.post(path, content=decision, headers={"content-type": "application/json"})
            assert 400 <= answer.status_code < 500, (path, answer.text)
    for place in ("/runs", "/agents/carrier/runs", "/agents/carrier/conversations", "/approvals"):
        for cursor in ("%00", "%ED%A0%80", "x" * 3000, str(2**63), str(2**70), "-1"):
            answer = api.get_path(f"{place}?cursor={cursor}")
            assert answer.status_code in (200, 400, 422), (place, cursor, answer.text)
    page = api.get_path(f"/agents/carrier/conversations/{run['conversation_id']}?limit=1").json()
    kind, *numbers = base64.urlsafe_b64decode(page["next_cursor"] + "==").decode().split(":")
    for number in (0, 2**31, 2**62):
        forged = base64.urlsafe_b64encode(":".join([kind, *(str(number) for _ in numbers)]).encode()).decode()
        answer = api.get_path(f"/agents/carrier/conversations/{run['conversation_id']}?cursor={forged.rstrip('=')}")
        assert answer.status_code == 200, (number, answer.text)
    for number in (2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, -1):
        for headers, query in (({"last-event-id": str(number)}, ""), ({}, f"?after={number}")):
            answer = api.get_path(f"/runs/{run['id']}/events{query}", headers=headers)
            assert answer.status_code in (200, 204, 400, 422), (number, answer.text)
    uploaded = api.http.post("/files", files={"file": ("a\x00b.txt", b"a\x00b", "text/plain")})
    assert uploaded.status_code in (200, 201, 422), uploaded.text
    for path in (f"/agents/carrier/conversations/{run['conversation_id']}%00", "/files/file_%00"):
        assert api.get_path(path).status_code == 404
    assert api.http.delete(f"/agents/carrier/conversations/{run['conversation_id']}%00").status_code == 404
    assert api.post_path(f"/runs/{run['id']}%00/cancel").status_code == 404
    assert api.events(run["id"]) == told
    assert len(api.get_path("/runs").json()["items"]) == 1
    assert "cannot be used" not in server.log()
    assert "Traceback" not in server.log()
