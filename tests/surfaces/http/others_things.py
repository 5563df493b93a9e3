"""People with things of every kind, and all requests that name a thing of somebody else, from the OpenAPI document."""

from __future__ import annotations

import itertools
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from urllib.parse import quote

from asking import Answer, Asker

from amoxi_py import Runs
from amoxi_py.surfaces.http.app import build_http
from amoxi_py.surfaces.http.door import Door

TOKEN = "acme-token-0123456789"
SIGNED_IN = {
    "user": "ann",
    "staff": "gus",
    "same id, other tenant": "ann-elsewhere",
    "same id, no tenant": "ann-nowhere",
}
TENANTS = {"user": "acme", "same id, other tenant": "globex", "staff": "globex"}
NAMES = ("visitor", "another visitor", "token", *SIGNED_IN)

_ENDED = "event: run.cancelled"


@dataclass(frozen=True)
class Things:
    """Ids by their kind, of runs of one agent and what belongs to them."""

    agent: str
    ids: Mapping[str, str]


@dataclass(frozen=True)
class Person:
    """Somebody with things of every kind.

    Attributes:
        theirs: What others try: a run that waits for its owner's decision, and all that belongs to it.
        decided_by_others: Runs that wait for somebody else of the same tenant, who reads one of them.
        done: For addresses of one's own.
        cursors: By list.
        more: What else names something of this person: a used idempotency key, a version of a file, credentials.
    """

    name: str
    headers: Mapping[str, str]
    theirs: Things
    done: Things
    decided_by_others: tuple[Things, ...]
    cursors: Mapping[str, str]
    more: Mapping[str, str]

    @property
    def tenant(self) -> str:
        return TENANTS.get(self.name, "")

    def closed_to(self, other: Person) -> tuple[Things, ...]:
        """Return what another must not reach: all of it, but for what somebody of the same tenant may decide."""
        return (self.theirs, *(() if other.tenant == self.tenant else self.decided_by_others))

    def private(self, other: Person) -> frozenset[str]:
        """Return all texts that another must not come to know: ids and what was said."""
        closed = self.closed_to(other)
        ids = itertools.chain.from_iterable(things.ids.values() for things in (self.done, *closed))
        return frozenset([*ids, said_by(self.name), *([shared_by(self.name)] if len(closed) > 1 else ())])


def said_by(name: str) -> str:
    return "saidby" + "".join(filter(str.isalpha, name))


def shared_by(name: str) -> str:
    return "sharedby" + "".join(filter(str.isalpha, name))


async def move_in(app: Any, name: str) -> Person:
    """Give somebody runs that wait, one that has ended, their conversations, calls, messages, files and cursors."""
    http = Asker(app, {"x-user": SIGNED_IN[name]} if name in SIGNED_IN else {})
    if name == "token":
        http.headers["authorization"] = f"Bearer {TOKEN}"
    elif name not in SIGNED_IN:
        cookie = (await http.ask("GET", "/agents")).header("set-cookie").partition(";")[0]
        http.headers["cookie"] = cookie
    runs: Runs = app.state.amoxi.runs
    theirs = await _remembered(runs, await _waiting(http, "desk", "own", said_by(name)), said_by(name))
    done = await _remembered(runs, await _waiting(http, "desk", "own", said_by(name)), said_by(name))
    others = (
        await _remembered(runs, await _waiting(http, "open-desk", "pay", shared_by(name)), said_by(name)),
        await _remembered(runs, await _waiting(http, "desk", "delete", shared_by(name)), said_by(name)),
    )
    await _waiting(http, "desk", "own", said_by(name))  # so that a page of one is not all
    await _ok(http, "POST", f"/runs/{done.ids['run']}/cancel")
    key = f"key-of-{name.replace(' ', '-')}"
    await _ok(http, "POST", "/agents/desk/runs", headers={"idempotency-key": key}, body={"message": "hello"})
    cursors = {}
    for path in (
        "/runs",
        "/agents/desk/conversations",
        "/approvals",
        "/memories",
        f"/agents/desk/conversations/{theirs.ids['conv']}",
    ):
        cursors[_list_of(path)] = (await _ok(http, "GET", f"{path}?limit=1")).json()["next_cursor"]
    etag = (await _ok(http, "GET", f"/files/{theirs.ids['file']}")).header("etag")
    more = {"key": key, "etag": etag, "user": SIGNED_IN.get(name, ""), "cookie": http.headers.get("cookie", "")}
    assert all(cursors.values()), cursors
    return Person(name, http.headers, theirs, done, others, cursors, more)


def _list_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return name if name in ("runs", "conversations", "approvals", "memories") else "messages"


async def _ok(http: Asker, method: str, target: str, **more: Any) -> Answer:
    told = await http.ask(method, target, **more)
    assert told.status < 300, (method, target, told)
    return told


async def _waiting(http: Asker, agent: str, tool: str, said: str) -> Things:
    run = (await _ok(http, "POST", f"/agents/{agent}/runs", body={"message": f"{tool} {said}"})).json()
    await _ok(http, "GET", f"/runs/{run['id']}/events", until="event: run.waiting")
    (waiting,) = (await _ok(http, "GET", f"/runs/{run['id']}")).json()["waiting_for"]
    conversation = await _ok(http, "GET", f"/agents/{agent}/conversations/{run['conversation_id']}")
    sent = await _ok(http, "POST", "/files", **upload(f"{said} {run['id']}", f"{said}.txt"))
    ids = {"run": run["id"], "conv": run["conversation_id"], "call": waiting["call_id"], "file": sent.json()["id"]}
    return Things(agent, {**ids, "msg": conversation.json()["items"][0]["id"]})


async def _remembered(runs: Runs, things: Things, said: str) -> Things:
    """Let something be remembered of the owner of a run."""
    owner = (await runs.get(things.ids["run"])).principal
    memory = await runs.remember(f"{said} about {things.ids['run']}", principal=owner)
    return Things(things.agent, {**things.ids, "mem": memory.id})


def upload(content: str, name: str = "own.txt") -> dict[str, Any]:
    """Return headers and body of a form with a file."""
    head = f'--limit\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/plain'
    headers = {"content-type": "multipart/form-data; boundary=limit"}
    return {"headers": headers, "body": f"{head}\r\n\r\n{content}\r\n--limit--\r\n".encode()}


async def state(http: Asker, person: Person) -> list[str]:
    """Return all that somebody reads of the things that others try, and of what waits for a decision."""
    told: list[str] = []
    for things in (person.theirs, person.done, *person.decided_by_others):
        for path in ("/runs/{run}", "/agents/{agent}/conversations/{conv}", "/files/{file}"):
            answer = await _ok(http, "GET", path.format(agent=things.agent, **things.ids))
            told += [str(answer.headers), answer.text]
        until = _ENDED if things is person.done else "event: run.waiting"
        told.append((await _ok(http, "GET", f"/runs/{things.ids['run']}/events", until=until)).text)
    told.append((await _ok(http, "GET", "/memories?limit=200")).text)
    ids = set().union(*(things.ids.values() for things in (person.theirs, *person.decided_by_others)))
    for path in ("/agents/desk/conversations", "/approvals"):
        listed = (await _ok(http, "GET", f"{path}?limit=200")).json()["items"]
        told += [str(one) for one in listed if ids & {str(value) for value in one.values()}]
    return told


@dataclass(frozen=True)
class Operation:
    """One route and method; `names` are what its address takes beside the agent."""

    method: str
    path: str
    described: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in re.findall(r"{(\w+)}", self.path) if name != "agent")

    def kind_of(self, name: str) -> str:
        if name == "call_id":
            return "call"
        if "memories" in self.path:
            return "mem"
        return "conv" if "conversations" in self.path else "file" if "files" in self.path else "run"

    def parameters(self, place: str) -> list[str]:
        return [one["name"] for one in self.described.get("parameters", ()) if one["in"] == place]

    @property
    def schema(self) -> Mapping[str, Any]:
        content = self.described.get("requestBody", {}).get("content", {})
        schema: Mapping[str, Any] = content.get("application/json", {}).get("schema", {})
        return schema

    def own_address(self, own: Things) -> str:
        """Return an address of one's own; for a deletion one where there is nothing, so that all are the same."""
        ids = {name: own.ids[self.kind_of(name)] for name in self.names}
        if self.method == "DELETE":
            ids = {name: unlike(one) for name, one in ids.items()}
        return self.path.format(agent=own.agent, **ids)

    def own_body(self) -> dict[str, Any]:
        """Return what `Asker.ask` sends as a body that is right."""
        if "/files" in self.path and self.method == "POST":
            return upload("what is one's own")
        fields = self.schema.get("properties", {})
        body = {name: fields[name].get("enum", ["hello"])[0] for name in self.schema.get("required", ())}
        return {"body": body} if fields else {}


@cache
def operations() -> tuple[Operation, ...]:
    """Return all that is not open to everybody, but for what deletes all of one's own and names nothing."""
    paths = build_http(Door()).openapi()["paths"]
    return tuple(
        Operation(method.upper(), path, described)
        for path, methods in paths.items()
        for method, described in methods.items()
        if (method, path) != ("delete", "/memories")
        and path not in ("/agents", "/health/live", "/health/ready", "/metrics")
    )


def unlike(text: str) -> str:
    """Return one of the same form that does not exist."""
    kind, mark, rest = text.partition("_")
    if not mark:
        return text[::-1]
    core, *place = rest.split("_")
    return "_".join([kind, core[:6] + core[6:][::-1], *place])


def unlike_cursor(cursor: str) -> str:
    """Return the cursor of the next place, where nothing is of the one who asks either."""
    kind, *place, last = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split(":")
    return urlsafe_b64encode(":".join([kind, *place, str(int(last) + 1)]).encode()).decode().rstrip("=")


@cache
def written(id: str) -> dict[str, str]:
    """The ways to write an id in an address."""
    return {
        "as it is": id,
        "upper case": id.upper(),
        "space after": f"{id}%20",
        "space before": f"%20{id}",
        "encoded": "".join(f"%{ord(letter):02X}" for letter in id),
        "encoded twice": quote(id).replace("_", "%255F"),
        "slash after": f"{id}/",
        "dots": f"x/../{id}",
        "nul": f"{id}%00",
    }


@cache
def written_in_json(id: str) -> dict[str, str]:
    """The ways to write an id in a body or a header."""
    return {
        "as it is": id,
        "upper case": id.upper(),
        "space after": f"{id} ",
        "space before": f" {id}",
        "encoded": quote(id).replace("_", "%5F"),
    }


@dataclass(frozen=True)
class Try:
    """A request that names a thing of somebody else, and the same with one that does not exist.

    `asked` are the texts of both that an answer may repeat.
    """

    operation: Operation
    what: str
    target: str
    unknown: str
    more: Mapping[str, Any] = field(default_factory=dict)
    unknown_more: Mapping[str, Any] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.operation.method} {self.operation.path}: {self.what}"


def in_the_path(
    operation: Operation, asker: Person, theirs: Things, spellings: Iterator[str] | None = None
) -> Iterator[Try]:
    """Name the thing of another at each place of an address, and at all of them: as it is, and in the next spelling."""
    names = operation.names
    for places in dict.fromkeys([*((name,) for name in names), names] if names else ()):
        ids = {name: theirs.ids[operation.kind_of(name)] for name in places}
        for way in ("as it is",) if spellings is None else ("as it is", next(spellings)):
            own = {name: asker.done.ids[operation.kind_of(name)] for name in names}
            target, unknown = (
                operation.path.format(
                    agent=theirs.agent, **{**own, **{name: written(one)[way] for name, one in these.items()}}
                )
                for these in (ids, {name: unlike(one) for name, one in ids.items()})
            )
            body = operation.own_body()
            asked = (*ids.values(), *map(unlike, ids.values()))
            yield Try(operation, f"path {places} {way}", target, unknown, body, body, asked)


def by_cursor(operation: Operation, asker: Person, owner: Person) -> Iterator[Try]:
    """Go on in a list of one's own where another stopped in his."""
    address = operation.own_address(asker.done)
    if "cursor" in operation.parameters("query"):
        cursor = owner.cursors[_list_of(operation.path)]
        targets = [f"{address}?limit=9&cursor={one}" for one in (cursor, unlike_cursor(cursor))]
        yield Try(operation, "cursor", *targets)


def beside_the_path(operation: Operation, asker: Person, owner: Person, spellings: Iterator[str]) -> Iterator[Try]:
    """Name things of another where a header or a body takes the name of one."""
    address, sent = operation.own_address(asker.done), operation.own_body()
    if "Idempotency-Key" in operation.parameters("header"):
        key = owner.more["key"]
        more, unknown = ({**sent, "headers": {"idempotency-key": one}} for one in (key, unlike(key)))
        yield Try(operation, "key", address, address, more, unknown)
    for name, kind in (("conversation_id", "conv"), ("files", "file")):
        if name in operation.schema.get("properties", {}):
            yield from _in_the_body(operation, asker, name, owner.theirs.ids[kind], ("as it is", next(spellings)))


def _in_the_body(
    operation: Operation, asker: Person, name: str, id: str, ways: tuple[str, ...] = ("as it is",)
) -> Iterator[Try]:
    address, sent = operation.own_address(asker.done), operation.own_body()["body"]
    many = operation.schema["properties"][name].get("type") == "array"
    unknown = written_in_json(unlike(id))
    for way in ways:
        bodies = [{"body": {**sent, name: [one] if many else one}} for one in (written_in_json(id)[way], unknown[way])]
        yield Try(operation, f"body {name} {way}", address, address, *bodies, asked=(id, unlike(id)))


def where_nothing_is_asked(operation: Operation, asker: Person, owner: Person) -> Iterator[Try]:
    """Name things of another in headers and parameters that no route knows, at an address of one's own."""
    address, lists = operation.own_address(asker.done), "limit" in operation.parameters("query")
    forms = []
    for like in (str, unlike):
        ids = {kind: like(one) for kind, one in owner.theirs.ids.items()}
        names = {f"{kind}_id": one for kind, one in ids.items()} | {"conversation_id": ids["conv"], "id": ids["run"]}
        who = like(owner.more["user"] or "nobody")
        query = "&".join(
            f"{name}={one}" for name, one in {**names, "principal": f"user:{who}", "tenant": "acme"}.items()
        )
        headers = {name.replace("_", "-"): one for name, one in names.items()}
        headers |= {"x-user-id": who, "x-forwarded-user": who, "remote-user": who, "x-tenant": "acme"}
        headers |= {"x-original-url": f"/runs/{ids['run']}", "x-rewrite-url": f"/files/{ids['file']}"}
        headers |= {"x-http-method-override": "DELETE", "referer": f"http://127.0.0.1/runs/{ids['run']}"}
        headers |= {"last-event-id": ids["msg"], "if-none-match": like(owner.more["etag"])}
        headers |= {"if-range": like(owner.more["etag"]), "range": "bytes=0-3"}
        name, _, value = owner.more["cookie"].partition("=")
        if value:
            headers["cookie"] = f"{name}={like(value)}"
        if "authorization" in asker.headers:  # a token goes before a sign-in
            headers["x-user"] = owner.more["user"] or "ann"
        sent = operation.own_body()
        forms.append(
            (f"{address}?{'limit=9&' * lists}{query}", {**sent, "headers": {**headers, **sent.get("headers", {})}})
        )
    (target, more), (unknown, unknown_more) = forms
    yield Try(operation, "where nothing is asked", target, unknown, more, unknown_more)


def of_the_wrong_kind(operation: Operation, asker: Person, owner: Person) -> Iterator[Try]:
    """Name things of another where another kind is asked for, and by methods that an address does not take."""
    ids, own = owner.theirs.ids, asker.done
    sent, address = operation.own_body(), operation.own_address(own)
    for kind, theirs in ids.items():
        asked = (theirs, unlike(theirs))
        for name in operation.names:
            wrong = replace(own, ids={**own.ids, operation.kind_of(name): theirs})
            unknown = replace(own, ids={**own.ids, operation.kind_of(name): unlike(theirs)})
            targets = [operation.path.format(agent="desk", **_named(operation, one)) for one in (wrong, unknown)]
            if kind != operation.kind_of(name):
                yield Try(operation, f"{kind} as {name}", *targets, sent, sent, asked)
            else:
                for method in ("HEAD", "PUT", "PATCH", "OPTIONS"):
                    yield Try(replace(operation, method=method), f"{method} of {kind}", *targets, asked=asked)
        for name in {*operation.parameters("query")} - {"q"}:  # any two ids find one's own at other scores
            targets = [f"{address}?{name}={one}" for one in asked]
            yield Try(operation, f"{kind} in the query as {name}", *targets, sent, sent, asked)
        for name in operation.parameters("header"):
            both = [{**sent, "headers": {name: one}} for one in asked]
            yield Try(operation, f"{kind} in the header {name}", address, address, *both)
        for name, schema in operation.schema.get("properties", {}).items():
            if "enum" not in schema:
                yield from _in_the_body(operation, asker, name, theirs)
        if operation.schema:
            both = [{"body": {**sent["body"], f"{kind}_id": one}} for one in asked]
            yield Try(operation, f"{kind} in the body as another field", address, address, *both, asked=asked)


def _named(operation: Operation, things: Things) -> dict[str, str]:
    return {name: things.ids[operation.kind_of(name)] for name in operation.names}


async def answer(http: Asker, one: Try, *, unknown: bool = False) -> Answer:
    """Ask, with the thing of the other or with the one that does not exist."""
    target, more = (one.unknown, one.unknown_more) if unknown else (one.target, one.more)
    return await http.ask(one.operation.method, target, until=_ENDED, **more)
