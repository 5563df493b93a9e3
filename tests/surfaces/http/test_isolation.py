"""Principals of two tenants try each other's ids wherever a route takes anything; the routes are the OpenAPI page's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

import pytest

from amoxi_py.surfaces.http.app import build_http
from amoxi_py.surfaces.http.door import Door

_ID = re.compile(r"\b(run|conv|call|msg|file)(_|%5F)[0-9a-z_%]{8,}", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_OPEN_TO_ALL = ("/agents", "/health/live", "/health/ready")


@dataclass(frozen=True)
class Person:
    """Somebody with things of every kind: `theirs` others try, `done` is for addresses of one's own."""

    name: str
    http: Any
    secret: str
    theirs: dict[str, str] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, Any] = field(default_factory=dict)


def move_in(staffed: Any, name: str, http: Any) -> Person:
    """Give somebody a run that waits, one that has ended, their conversations, calls, messages and files."""
    http.get("/agents")
    person = Person(name, http, f"secret-of-{name}")
    for into, tool in ((person.theirs, "own"), (person.done, "own")):
        run = staffed.waiting(http, tool, person.secret)
        into |= {"run": run["id"], "conv": run["conversation_id"], "call": run["waiting_for"][0]["call_id"]}
        into["msg"] = http.get(f"/agents/desk/conversations/{run['conversation_id']}").json()["items"][0]["id"]
        sent = http.post("/files", files={"file": (f"{person.secret}.txt", person.secret.encode(), "text/plain")})
        assert sent.status_code == 201, sent.text
        into["file"] = sent.json()["id"]
        if into is person.done:
            http.post(f"/runs/{run['id']}/cancel")
        else:
            person.waiting.update(run)
    return person


@pytest.fixture(scope="module")
def people(staffed: Any) -> dict[str, Person]:
    asks = {
        "visitor": staffed.asks(),
        "user": staffed.asks("ann"),
        "staff": staffed.asks("gus"),
        "token": staffed.asks(authorization=f"Bearer {staffed.token}"),
        "same id, other tenant": staffed.asks("ann-elsewhere"),
    }
    return {name: move_in(staffed, name, http) for name, http in asks.items()}


@cache
def operations() -> tuple[tuple[str, str, dict[str, Any]], ...]:
    """Method, path and description of everything that is not open to all."""
    paths = build_http(Door()).openapi()["paths"]
    return tuple(
        (method.upper(), path, described)
        for path, methods in paths.items()
        for method, described in methods.items()
        if path not in _OPEN_TO_ALL
    )


def others_form(id: str) -> str:
    """An id of the same form that does not exist."""
    kind, _, rest = id.partition("_")
    core, *place = rest.split("_")
    return "_".join([kind, core[:6] + core[6:][::-1], *place])


def written(id: str) -> dict[str, str]:
    """The ways to write an id in an address."""
    return {
        "as it is": id,
        "upper case": id.upper(),
        "space after": f"{id}%20",
        "space before": f"%20{id}",
        "encoded": "".join(f"%{ord(letter):02X}" for letter in id),
        "encoded twice": quote(quote(id, safe=""), safe="").replace("_", "%255F"),
        "slash after": f"{id}/",
        "dots": f"x/../{id}",
        "nul": f"{id}%00",
    }


def requests_with(described: dict[str, Any], path: str, own: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Each place of an operation that takes an id, and how to make the request that has one there."""
    names = re.findall(r"{(\w+)}", path)
    body = sent_body(described)
    more = {"json": body} if body else {}

    def address(**others: str) -> str:
        return path.format(**{name: others.get(name) or own_part(path, name, own) for name in names})

    for name in names:
        if name != "agent":
            yield f"path:{name}", lambda it, name=name: (address(**{name: it}), more)
    for parameter in described.get("parameters", ()):
        at, name = parameter["in"], parameter["name"]
        if at == "query":
            yield f"query:{name}", lambda it, name=name: (f"{address()}?{name}={it}", more)
        elif at == "header":
            yield f"header:{name}", lambda it, name=name: (address(), {**more, "headers": {name: it}})
    for name, schema in body_fields(described).items():
        many = schema.get("type") == "array"
        yield (
            f"body:{name}",
            lambda it, name=name, many=many: (address(), {"json": {**body, name: [it] if many else it}}),
        )


def own_part(path: str, name: str, own: dict[str, str]) -> str:
    """What stands in an address of one's own."""
    return "desk" if name == "agent" else own[kind_of(path, name)]


def kind_of(path: str, name: str) -> str:
    if name == "call_id":
        return "call"
    return "conv" if "conversations" in path else "file" if "files" in path else "run"


def schema_of_body(described: dict[str, Any]) -> dict[str, Any]:
    content = described.get("requestBody", {}).get("content", {})
    schema: dict[str, Any] = content.get("application/json", {}).get("schema", {})
    return schema


def sent_body(described: dict[str, Any]) -> dict[str, Any]:
    schema = schema_of_body(described)
    return {name: schema["properties"][name].get("enum", ["hello"])[0] for name in schema.get("required", ())}


def body_fields(described: dict[str, Any]) -> dict[str, Any]:
    schema = schema_of_body(described)
    return {name: one for name, one in schema.get("properties", {}).items() if "enum" not in one}


def answer(person: Person, method: str, made: tuple[str, dict[str, Any]]) -> tuple[int, dict[str, str], str]:
    """Status, headers and body, without what is different in any two answers; of a stream only that it is one."""
    path, more = made
    with person.http.stream(method, path, **more) as response:
        streams = response.headers.get("content-type", "").startswith("text/event-stream")
        text = "" if streams else response.read().decode()
        headers = {name: value for name, value in response.headers.items() if name not in ("date", "content-length")}
    return response.status_code, headers, text


def without_ids(told: tuple[int, dict[str, str], str]) -> tuple[int, str, str]:
    status, headers, text = told
    if status < 300:  # of one's own: what it is may change from one moment to the next
        return status, "", ""
    return status, _ID.sub("<id>", str(headers)), _TIME.sub("<time>", _ID.sub("<id>", text))


def state(person: Person) -> list[str]:
    """All that somebody reads of the things that others have tried."""
    own, http = person.theirs, person.http
    with http.stream("GET", f"/runs/{own['run']}/events") as stream:
        events = []
        for line in stream.iter_lines():
            events.append(line)
            if line == "event: run.waiting":
                break
    return [
        http.get(f"/runs/{own['run']}").text,
        http.get(f"/agents/desk/conversations/{own['conv']}").text,
        http.get(f"/files/{own['file']}").text,
        *events,
    ]


def test_lists_show_ones_own_alone(people: dict[str, Person]) -> None:
    for method, path, _ in operations():
        if method != "GET" or not path.endswith(("/runs", "/conversations", "/approvals")):
            continue
        for person in people.values():
            text = person.http.get(path.replace("{agent}", "desk"), params={"limit": "200"}).text
            for other in people.values():
                if other is not person:
                    assert not [one for one in (*other.theirs.values(), *other.done.values()) if one in text], path


PAIRS = (
    ("visitor", "user"),
    ("user", "staff"),
    ("staff", "token"),
    ("token", "visitor"),
    ("user", "same id, other tenant"),
    ("same id, other tenant", "user"),
)


def test_ids_of_others_are_answered_as_ids_that_do_not_exist(people: dict[str, Person]) -> None:
    assert len(operations()) >= 15
    before = {name: state(person) for name, person in people.items()}
    tried, wrong = 0, []
    for n, (one, other) in enumerate(PAIRS):
        asker, owner = people[one], people[other]
        for method, path, described in operations():
            for place, make in requests_with(described, path, asker.done):
                if n > 0 and place.startswith(("query", "header")):
                    continue
                for kind, theirs in owner.theirs.items():
                    if place.startswith("path") and kind != kind_of(path, place.removeprefix("path:")):
                        continue
                    ways = written(theirs)
                    shown = ways if n == 0 and place.startswith("path") else {"as it is": ways["as it is"]}
                    for way, text in shown.items():
                        told = answer(asker, method, make(text))
                        unknown = answer(asker, method, make(written(others_form(theirs))[way]))
                        tried += 1
                        if without_ids(told) != without_ids(unknown):
                            wrong.append((one, other, method, path, place, kind, way, told, unknown))
                        assert owner.secret not in told[2], (method, path, place, kind, way)
    assert not wrong, wrong[:3]
    assert tried > 500
    assert {name: state(person) for name, person in people.items()} == before
