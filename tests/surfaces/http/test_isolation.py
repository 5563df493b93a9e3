"""O27: principals of two tenants try each other's things wherever a route takes anything; the routes are OpenAPI's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asking import Answer, Asker, Compared, compared
from fastapi import FastAPI
from others_things import (
    NAMES,
    TOKEN,
    Person,
    Things,
    Try,
    answer,
    beside_the_path,
    by_cursor,
    in_the_path,
    move_in,
    of_the_wrong_kind,
    operations,
    said_by,
    state,
    unlike,
    where_nothing_is_asked,
    written,
    written_in_json,
)

from amoxi_py import Runs, install
from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.app.web import web_app
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import AmoxiError

PAIRS = (
    *itertools.permutations(NAMES[:-1], 2),
    *itertools.permutations(("user", NAMES[-1]), 2),
    *itertools.permutations(("same id, other tenant", NAMES[-1]), 2),
)
FEW = (("visitor", "another visitor"), ("staff", "user"))
IN_PATH, IN_BODY = tuple(written("run_x"))[1:], tuple(written_in_json("run_x"))[1:]

People = dict[str, Person]


def settings_of(folder: Path, **more: Any) -> Settings:
    given = {"app.package": "staffed_app", "ai.store.path": str(folder / "ai"), "ai.model": "offline"}
    given |= {"ai.http.anonymous": True, "server.stop-grace-s": 1.0}
    environ = {"AI_API_CALLERS_ACME": TOKEN}
    return load_settings(folder, profile="test", environ=environ, given={**given, **more})


def app_of(settings: Settings) -> FastAPI:
    return web_app(Runtime(settings, read_declarations(settings), stand_ins=StandIns()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("isolation")


@pytest.fixture(scope="module")
def people(folder: Path) -> People:
    async def all_move_in() -> People:
        app = app_of(settings_of(folder))
        async with app.router.lifespan_context(app):
            return {name: await move_in(app, name) for name in NAMES}

    return asyncio.run(all_move_in())


class Trial:
    """Asks an app for things of others and for things that do not exist, and keeps where the answers differ."""

    def __init__(self, app: FastAPI, people: People, prefix: str) -> None:
        self.people = people
        self.http = {name: Asker(app, person.headers, prefix) for name, person in people.items()}
        self.tried: set[str] = set()
        self.wrong: list[tuple[str, str, str, Answer, Compared]] = []
        self._unknown: dict[tuple[str, str, str], Compared] = {}

    async def compare(self, asker: str, owner: str, tries: Iterable[Try], *, once: bool = False) -> None:
        """Ask for both; with `once` the answer for what does not exist is the same for all owners."""
        private = self.people[owner].private(self.people[asker])
        for one in tries:
            told = await answer(self.http[asker], one)
            key = (asker, str(one), one.unknown.partition("/runs/")[0])
            unknown = self._unknown.get(key) if once else None
            if unknown is None:
                unknown = compared(await answer(self.http[asker], one, unknown=True), one.asked)
                self._unknown[key] = unknown
            self.tried.add(str(one))
            shown = f"{told.headers}\n{told.text}"
            if compared(told, one.asked) != unknown or any(text in shown for text in private if text not in one.asked):
                self.wrong.append((asker, owner, str(one), told, unknown))

    async def pair(self, one: str, other: str, turn: int) -> None:
        """Let one try what is the other's at every route.

        Each pair writes ids in all ways, and over the turns each place of each route gets all of them.
        """
        asker, owner = self.people[one], self.people[other]
        in_path, in_body = (itertools.islice(itertools.cycle(ways), turn, None) for ways in (IN_PATH, IN_BODY))
        for n, operation in enumerate(operations(), turn):
            await self.compare(one, other, in_the_path(operation, asker, owner.theirs, in_path), once=True)
            for things in owner.closed_to(asker)[1:][n % 2 :][:1]:
                await self.compare(one, other, in_the_path(operation, asker, things), once=True)
            await self.compare(one, other, beside_the_path(operation, asker, owner, in_body), once=True)
            await self.compare(one, other, by_cursor(operation, asker, owner))
            if n % 3 == 0:
                lists = "cursor" in operation.parameters("query")  # they grow in between
                await self.compare(one, other, where_nothing_is_asked(operation, asker, owner), once=not lists)

    async def nobody_is_told(self) -> None:
        """Look for things of others in all lists."""
        for one, operation in itertools.product(NAMES, operations()):
            if "cursor" in operation.parameters("query") and not operation.names:
                told = await self.http[one].ask("GET", f"{operation.path.format(agent='desk')}?limit=200")
                listed = str([{**item, "title": ""} for item in told.json()["items"]])  # some said an id of another
                for owner in self.people.values():
                    private = owner.private(self.people[one]) if owner.name != one else ()
                    assert not [text for text in private if text in listed], (one, owner.name, operation.path)

    async def states(self) -> dict[str, list[str]]:
        return {name: await state(self.http[name], person) for name, person in self.people.items()}


@asynccontextmanager
async def trial(app: FastAPI, people: People, prefix: str = "") -> AsyncIterator[Trial]:
    """Start an app without a worker, so that nothing changes by itself, and see what was tried in it."""
    async with app.router.lifespan_context(app):
        trying = Trial(app, people, prefix)
        before = await trying.states()
        yield trying
        assert not trying.wrong[:3], len(trying.wrong)
        assert await trying.states() == before
        await trying.nobody_is_told()


def app_alone(folder: Path) -> tuple[FastAPI, str]:
    return app_of(settings_of(folder, **{"ai.runs.worker": False})), ""


def app_under_a_prefix(folder: Path) -> tuple[FastAPI, str]:
    return app_of(settings_of(folder, **{"ai.runs.worker": False, "ai.http.prefix": "/ai"})), "/ai"


def app_of_a_host(folder: Path) -> tuple[FastAPI, str]:
    host = FastAPI()
    install(host, "/ai", settings=settings_of(folder, **{"ai.runs.worker": False}))

    @host.get("/{path:path}")
    async def everything_else(path: str) -> dict[str, str]:
        return {"host": path}

    return host, "/ai"


def test_ids_of_others_are_answered_as_ids_that_do_not_exist(folder: Path, people: People) -> None:
    async def all_try() -> None:
        async with trial(app_alone(folder)[0], people) as trying:
            for turn, (one, other) in enumerate(PAIRS):
                await trying.pair(one, other, turn)
            one, other = "user", "same id, other tenant"
            for operation in operations():
                await trying.compare(one, other, of_the_wrong_kind(operation, people[one], people[other]))
            spelled = [one for one in trying.tried if ": path" in one]
            assert len(spelled) == 9 * len([one for one in spelled if one.endswith("as it is")]) >= 9 * 18

    assert len(operations()) >= 20
    asyncio.run(all_try())


@pytest.mark.parametrize("make", [app_under_a_prefix, app_of_a_host])
def test_a_prefix_and_a_host_change_nothing_of_it(
    folder: Path, people: People, make: Callable[[Path], tuple[FastAPI, str]]
) -> None:
    async def some_try() -> None:
        app, prefix = make(folder)
        async with trial(app, people, prefix) as trying:
            for turn, (one, other) in enumerate(FEW):
                await trying.pair(one, other, turn)

    asyncio.run(some_try())


def test_a_server_reads_no_address_otherwise(staffed: Any) -> None:
    ann, bob = staffed.asks("ann"), staffed.asks("bob")
    run = staffed.waiting(ann, "own", "unheard")
    call = run["waiting_for"][0]["call_id"]
    for path, theirs in (
        ("/runs/{}", run["id"]),
        ("/agents/desk/conversations/{}", run["conversation_id"]),
        ("/approvals/{}", call),
    ):
        for way in written(theirs):
            shown = []
            for one in (theirs, unlike(theirs)):
                target = path.format(written(one)[way])
                told = bob.post(target, json={"decision": "approve"}) if "approvals" in path else bob.get(target)
                by_chance = ("date", "x-request-id")
                headers = tuple((name, value) for name, value in told.headers.items() if name not in by_chance)
                shown.append(compared(Answer(told.status_code, headers, told.text), (theirs, unlike(theirs))))
            assert shown[0] == shown[1], (path, way)
            assert "unheard" not in shown[0][2]
    assert ann.get(f"/runs/{run['id']}").json() == run


Verb = Callable[[Runs, Principal, Things, Person], Awaitable[object]]

VERBS: dict[str, Verb] = {
    "get": lambda runs, who, theirs, _: runs.get(theirs.ids["run"], principal=who),
    "wait": lambda runs, who, theirs, _: runs.wait(theirs.ids["run"], timeout=0, principal=who),
    "events": lambda runs, who, theirs, _: anext(runs.events(theirs.ids["run"], principal=who)),
    "cancel": lambda runs, who, theirs, _: runs.cancel(theirs.ids["run"], principal=who),
    "retry": lambda runs, who, theirs, _: runs.retry(theirs.ids["run"], principal=who),
    "approve": lambda runs, who, theirs, _: runs.decide(theirs.ids["call"], "approve", by=who),
    "decline": lambda runs, who, theirs, _: runs.decide(theirs.ids["call"], "decline", by=who),
    "conversation": lambda runs, who, theirs, _: runs.submit(
        theirs.agent, "hello", conversation_id=theirs.ids["conv"], principal=who
    ),
    "file": lambda runs, who, theirs, _: runs.submit("desk", "hello", files=(theirs.ids["file"],), principal=who),
    "list": lambda runs, who, _, owner: runs.list(principal=who, cursor=owner.cursors["runs"]),
    "list memories": lambda runs, who, _, owner: runs.memories(principal=who, cursor=owner.cursors["memories"]),
    "list what is recalled": lambda runs, who, _, owner: runs.recall(said_by(owner.name), principal=who, limit=50),
    "list by status": lambda runs, who, _, owner: runs.list(principal=who, status="waiting", agent="desk"),
}


async def outcome(verb: Verb, runs: Runs, who: Principal, theirs: Things, owner: Person) -> str:
    """Return what a principal is given or told, as text without what it asked for."""
    try:
        return str(await verb(runs, who, theirs, owner))
    except AmoxiError as error:
        told = f"{type(error).__name__} {error.code}: {error}"
    for one in theirs.ids.values():
        told = told.replace(one, "<asked>")
    return told


def test_code_that_names_a_principal_reaches_nothing_of_others(folder: Path, people: People) -> None:
    async def all_try() -> None:
        app, _ = app_alone(folder)
        async with trial(app, people):
            runs: Runs = app.state.amoxi.runs
            who = {name: (await runs.get(person.theirs.ids["run"])).principal for name, person in people.items()}
            unknown: dict[tuple[str, str, str], str] = {}
            for (one, other), (name, verb) in itertools.product(PAIRS, VERBS.items()):
                owner = people[other]
                for theirs in owner.closed_to(people[one]):
                    told = await outcome(verb, runs, who[one], theirs, owner)
                    if "list" not in name:
                        nowhere = Things(theirs.agent, {kind: unlike(text) for kind, text in theirs.ids.items()})
                        if (one, name, theirs.agent) not in unknown:
                            unknown[one, name, theirs.agent] = await outcome(verb, runs, who[one], nowhere, owner)
                        assert told == unknown[one, name, theirs.agent], (one, other, name)
                        assert told.startswith("NotFound"), (one, other, name, told)
                    assert not [text for text in owner.private(people[one]) if text in told], (one, other, name, told)
            made = [await runs.submit("desk", "hello", idempotency_key="1", principal=one) for one in who.values()]
            assert [run.principal for run in made] == list(who.values())

    asyncio.run(all_try())
