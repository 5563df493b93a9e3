"""`Runs` and `open_app`: the app's own code starts runs, and looks at, follows and ends them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amoxi_py import Principal, Run, Runs, open_app
from amoxi_py.app.open_app import OpenApp
from amoxi_py.config.settings import Settings
from amoxi_py.errors import AmoxiError, Conflict, Forbidden, InvalidRequest, NotFound, StoreUnavailable

SOURCE = '''
from amoxi_py import Runs, agent, singleton, tool
from amoxi_py.testing import ScriptedModel, call

paid = []
NIGHT = ScriptedModel({
    "pay": [call("pay", amount=5), "Paid."],
    "ask": [call("drop", name="A"), "Dropped."],
    "fork": [call("fork", agent="inner"), "Forked."],
    "hello": ["Hello."],
}, record=False)


@singleton
class Money:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.closed = False

    async def __aexit__(self, *error):
        self.closed = True

    async def __aenter__(self):
        return self

    @tool(idempotent=True)
    async def pay(self, amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    @tool(needs_approval=True, approver="role:staff")
    async def drop(self, name: str) -> str:
        """Drop."""
        return "dropped"

    @tool(idempotent=True)
    async def fork(self, agent: str) -> str:
        """Start another run."""
        run = await self.runs.submit(agent, "hello")
        return (await self.runs.wait(run.id)).output


@agent(tools=[Money], model=NIGHT)
class Night:
    """You work at night."""


@agent(expose=False, model=NIGHT)
class Inner:
    """You are reached from code."""
'''
ANA, BOB = Principal(id="ana", name="Ana"), Principal(id="user:bob", channel="code")
STAFF = Principal(id="sam", roles=frozenset({"staff"}))
Play = Callable[..., Any]


@pytest.fixture
def play(make_app: Callable[..., Settings]) -> Play:
    """Open an app, play a story with it, and return what the story returns."""
    settings = make_app(SOURCE)

    def run(story: Callable[[OpenApp], Awaitable[Any]], *, worker: bool = True) -> Any:
        async def main() -> Any:
            async with asyncio.timeout(60), open_app(settings=settings, worker=worker) as app:
                return await story(app)

        return asyncio.run(main())

    return run


async def waiting(runs: Runs, principal: Principal | None = None) -> tuple[Run, str]:
    """Return a run that waits for an approval, and its call."""
    run = await runs.submit("night", "ask", principal=principal)
    async for event in runs.events(run.id):
        if event.type == "run.waiting":
            run = await runs.get(run.id)
            call_id = run.waiting_for[0].call_id
            assert call_id is not None
            return run, call_id
    raise AssertionError("the run did not wait")


def test_a_run_of_nobody_is_the_apps_own_and_is_followed_to_its_end(play: Play) -> None:
    async def story(app: OpenApp) -> None:
        run = await app.runs.submit("night", "pay")
        types = [event.type async for event in app.runs.events(run.id)]
        assert (types[0], types[-1]) == ("run.queued", "run.completed")
        ended = await app.runs.wait(run.id)
        assert (ended.status, ended.output) == ("completed", "Paid.")
        assert (ended.principal.id, ended.principal.channel) == ("system:shop", "code")
        assert await app.runs.get(run.id) == ended
        last = [event async for event in app.runs.events(run.id, after=0)][-1]
        assert (last.run_id, last.agent, last.principal) == (run.id, "night", ended.principal)

    play(story)


def test_a_plain_id_is_a_user_and_who_names_a_principal_finds_nothing_of_others(play: Play) -> None:
    async def story(app: OpenApp) -> None:
        runs = app.runs
        mine = await runs.submit("night", "hello", principal=ANA)
        his = await runs.submit("night", "hello", principal=BOB)
        odd = await runs.submit("night", "hello", principal=Principal(id="shop:9"))
        assert [one.principal.id for one in (mine, his, odd)] == ["user:ana", "user:bob", "user:shop:9"]
        assert (await runs.wait(mine.id, principal=mine.principal)).status == "completed"
        assert await runs.get(mine.id, principal=ANA) == await runs.get(mine.id)
        for refused in (
            runs.get(mine.id, principal=BOB),
            runs.wait(mine.id, principal=BOB),
            runs.cancel(mine.id, principal=BOB),
            runs.retry(mine.id, principal=BOB),
            runs.submit("night", "hello", principal=BOB, conversation_id=mine.conversation_id),
            anext(runs.events(mine.id, principal=BOB)),
            runs.get("run_unknown"),
        ):
            with pytest.raises(NotFound):
                await refused
        assert [run.id for run in (await runs.list(principal=ANA)).items] == [mine.id]
        everybodys = await runs.list(limit=2)
        rest = await runs.list(limit=2, cursor=everybodys.next_cursor)
        assert [run.id for run in (*everybodys.items, *rest.items)] == [odd.id, his.id, mine.id]
        await runs.wait(his.id)
        done = await runs.list(status="completed", agent="night", principal=BOB)
        assert [run.id for run in done.items] == [his.id]

    play(story)


def test_an_id_from_outside_makes_nobody_another_user_another_channels_caller_or_the_app(play: Play) -> None:
    async def story(app: OpenApp) -> None:
        runs = app.runs
        run, call_id = await waiting(runs, ANA)
        nobodys = await runs.submit("night", "hello")
        for told in ("user:ana", "system:shop", "system:mallory", "web:ana", "api:acme"):
            posing = Principal(id=told, roles=frozenset({"admin"}))
            for run_id in (run.id, nobodys.id):
                for refused in (
                    runs.get(run_id, principal=posing),
                    runs.wait(run_id, principal=posing, timeout=0),
                    runs.cancel(run_id, principal=posing),
                    runs.retry(run_id, principal=posing),
                    anext(runs.events(run_id, principal=posing)),
                ):
                    with pytest.raises(NotFound):
                        await refused
            with pytest.raises(NotFound):
                await runs.decide(call_id, "approve", by=posing)
            for status in (None, "waiting"):
                assert (await runs.list(principal=posing, status=status)).items == ()
            own = await runs.submit("night", "hello", principal=posing)
            assert own.principal.id == f"user:{told}"
            assert (await runs.get(own.id, principal=own.principal)).id == own.id

        script = Principal(id="system:nightly", channel="code")
        with pytest.raises(NotFound):  # a script of the app is nobody's approver; only the app itself may do all
            await runs.decide(call_id, "approve", by=script)
        assert (await runs.submit("night", "hello", principal=script)).principal == script
        assert (await runs.get(run.id)).status == "waiting"

    play(story)


def test_a_list_of_somebodys_runs_holds_none_of_the_same_id_in_another_tenant(play: Play) -> None:
    async def story(app: OpenApp) -> None:
        people = [Principal(id="42", tenant=tenant) for tenant in (None, "", "acme", "acme2")]
        people += [Principal(id="4"), Principal(id="421", tenant="acme")]
        expected = []
        for who in people:
            started = [await app.runs.submit("night", "hello", principal=who) for _ in range(3)]
            await asyncio.gather(*(app.runs.wait(run.id, timeout=30) for run in started))
            expected.append([run.id for run in reversed(started)])
        for who, own in zip(people, expected, strict=True):
            for status in (None, "completed"):
                for agent in (None, "night"):
                    found: list[str] = []
                    cursor = None
                    while True:
                        page = await app.runs.list(principal=who, status=status, agent=agent, limit=2, cursor=cursor)
                        found += [run.id for run in page.items]
                        cursor = page.next_cursor
                        if cursor is None:
                            break
                    assert found == own, (who, status, agent)
            for none in ({"status": "failed"}, {"status": "waiting"}, {"agent": "inner", "status": "completed"}):
                assert (await app.runs.list(principal=who, **none)).items == ()

    play(story)


def test_a_decision_is_made_by_who_may_make_it_or_by_the_app(play: Play) -> None:
    async def story(app: OpenApp) -> None:
        run, call_id = await waiting(app.runs, ANA)
        with pytest.raises(Forbidden):
            await app.runs.decide(call_id, "approve", by=ANA)
        with pytest.raises(NotFound):
            await app.runs.decide(call_id, "approve", by=BOB)
        approval = await app.runs.decide(call_id, "approve", by=STAFF, reason="fine")
        assert (approval.decision, approval.by, approval.reason) == ("approve", "user:sam", "fine")
        assert (await app.runs.wait(run.id)).output == "Dropped."
        with pytest.raises(Conflict) as refused:
            await app.runs.decide(call_id, "decline", by=STAFF)
        assert refused.value.code == "already_decided"

        _, second = await waiting(app.runs, ANA)
        assert (await app.runs.decide(second, "decline")).by == "system:shop"
        with pytest.raises(NotFound):
            await app.runs.decide("call_none", "decline")

    play(story)


def test_cancel_ends_a_run_and_retry_starts_a_new_one_of_its_message(play: Play) -> None:
    async def story(app: OpenApp) -> None:
        run, _ = await waiting(app.runs)
        still = await app.runs.wait(run.id, timeout=0.01)
        assert still.status == "waiting"
        assert (await app.runs.cancel(run.id)).status == "cancelled"
        again = await app.runs.retry(run.id)
        assert (again.id != run.id, again.conversation_id) == (True, run.conversation_id)

    play(story)


def test_a_tool_starts_runs_of_agents_that_no_door_shows(play: Play) -> None:
    async def story(app: OpenApp) -> None:
        run = await app.runs.submit("night", "fork")
        assert (await app.runs.wait(run.id)).output == "Forked."
        (inner,) = (await app.runs.list(agent="inner")).items
        assert inner.output == "Hello."

    play(story)


def test_a_principal_that_cannot_be_stored_is_refused_and_any_name_of_people_is_fine(play: Play) -> None:
    async def story(app: OpenApp) -> None:
        wrong: list[Any] = [
            Principal(id=""),
            Principal(id="a\nb"),
            Principal(id="a", claims={"at": object()}),
            Principal(id="a", claims={"much": "x" * 4096}),
            Principal(id="a", channel="code"),
            "ana",
        ]
        for principal in wrong:
            for asked in (
                app.runs.submit("night", "hello", principal=principal),
                app.runs.list(principal=principal),
                app.runs.list(principal=principal, status="failed"),
                app.runs.get("run_x", principal=principal),
                app.runs.decide("call_x", "approve", by=principal),
            ):
                with pytest.raises(InvalidRequest) as refused:
                    await asked
                assert refused.value.code == "principal_invalid"
        for name in ("山田\u3000太郎", "می\u200cخواهم", "A\u00a0B"):
            run = await app.runs.submit("night", "hello", principal=Principal(id=name, name=name, tenant=name))
            assert (run.principal.id, run.principal.name, run.principal.tenant) == (f"user:{name}", name, name)

    play(story, worker=False)


def test_what_the_code_got_wrong_is_told_as_http_does(play: Play) -> None:
    async def story(app: OpenApp) -> list[str]:
        runs, codes = app.runs, []
        await runs.submit("night", "hello", idempotency_key="k")
        for wrong in (
            runs.submit("nobody", "hello"),
            runs.submit("night", " "),
            runs.submit("night", "other", idempotency_key="k"),
            runs.decide("call_x", "maybe"),  # type: ignore[arg-type]  # what is refused
            runs.list(status="gone"),
            runs.list(limit=0),
        ):
            with pytest.raises(AmoxiError) as refused:
                await wrong
            codes.append(refused.value.code)
        return codes

    assert play(story, worker=False) == [
        "not_found",
        "message_empty",
        "idempotency_key_reused",
        *["invalid_request"] * 3,
    ]


def test_a_script_is_done_over_without_doing_anything_twice(play: Play) -> None:
    async def nightly(app: OpenApp) -> list[str]:
        tenants = [Principal(id="billing", tenant=f"t{number}") for number in range(30)]
        started = await asyncio.gather(
            *(
                app.runs.submit("night", "pay", principal=tenant, idempotency_key=f"night-{tenant.tenant}")
                for tenant in tenants
            )
        )
        ended = await asyncio.gather(*(app.runs.wait(run.id, timeout=30) for run in started))
        assert [run for run in ended if run.status != "completed"] == []
        return [run.id for run in ended]

    async def broken_off(app: OpenApp) -> None:
        for number in range(10):
            tenant = Principal(id="billing", tenant=f"t{number}")
            await app.runs.submit("night", "pay", principal=tenant, idempotency_key=f"night-t{number}")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        play(broken_off)
    first = play(nightly)
    assert play(nightly) == first
    assert len(set(first)) == 30
    (package,) = [module for name, module in sys.modules.items() if name.startswith("app_of_test_")]
    assert package.paid == [5] * 30


def test_an_app_that_is_opened_without_a_worker_leaves_the_work_to_others_and_hears_of_it(play: Play) -> None:
    async def story(app: OpenApp) -> str:
        run = await app.runs.submit("night", "pay")
        assert (await app.runs.wait(run.id, timeout=0.05)).status == "queued"
        return run.id

    async def rest(app: OpenApp) -> Run:
        (run,) = (await app.runs.list()).items
        return await app.runs.wait(run.id)

    run_id = play(story, worker=False)
    ended = play(rest)
    assert (ended.id, ended.output) == (run_id, "Paid.")


def test_the_app_is_closed_in_order_and_runs_says_that_it_is(play: Play) -> None:
    async def story(app: OpenApp) -> tuple[Runs, Any]:
        (package,) = [module for name, module in sys.modules.items() if name.startswith("app_of_test_")]
        money = app.get(package.Money)
        assert money.runs is app.runs
        assert not money.closed
        with pytest.raises(LookupError):
            app.get(dict)
        return app.runs, money

    runs, money = play(story)
    assert money.closed
    with pytest.raises(StoreUnavailable):
        asyncio.run(runs.submit("night", "hello"))
