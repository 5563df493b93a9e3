"""An agent asks others: what it asks for is a run of its own, below it, and its end is the call's result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import ToolContext, agent, tool
from amoxi_py.domain.event import Event, EventType, NewEvent
from amoxi_py.domain.ids import child_run_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, NotFound
from amoxi_py.models.script import call, fail, pause, reply
from amoxi_py.ports.changes import Change
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann", name="Ann", tenant="acme", roles=frozenset({"finance"}))
BEN = Principal(id="user:ben")
_BOUND = 20.0


class Place:
    """What the tools of a test have done, and where they wait for it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.running = self.most = 0


PLACES: list[Place] = []


def place() -> Place:
    return PLACES[-1]


@tool(idempotent=True)
async def note(text: str, ctx: ToolContext) -> str:
    """Note something."""
    ctx.progress(f"noting {text}")
    await ctx.save_file(f"{text}.txt", text.encode())
    principal = ctx.principal
    place().log.append(f"{text} for {principal.id}, {principal.tenant}, {sorted(principal.roles)}, {ctx.agent}")
    return f"noted {text}"


@tool(idempotent=True)
async def hold(ctx: ToolContext) -> str:
    """Wait until the test says so."""
    here = place()
    here.running += 1
    here.most = max(here.most, here.running)
    here.reached.set()
    waiting = [asyncio.ensure_future(here.go_on.wait()), asyncio.ensure_future(ctx.signal.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        here.running -= 1
        here.log.append("stopped" if ctx.signal.cancelled else "held")
        for one in waiting:
            one.cancel()
    return "held"


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    place().log.append(f"paid {amount}")
    return f"paid {amount}"


@tool(idempotent=True)
async def add(number: int) -> int:
    """Add one."""
    place().log.append(f"added {number}")
    return number + 1


@agent(tools=[note, hold])
class Archive:
    """You keep notes."""


@agent(tools=[pay, note, hold, add], agents=[Archive], max_turns=3, expose=False)
class Desk:
    """You do the work."""


@agent(tools=[add, pay, hold], agents=[Desk, Archive], on_busy="queue")
class Front:
    """You talk to people."""


Story = Callable[[Engine], Any]


@pytest.fixture
def tell(tmp_path: Path, with_engine: Any) -> Any:
    """Tell a story about an engine with the three agents, and a script by what is said."""

    def tell(script: Any, story: Story, **settings: Any) -> Any:
        async def main(engine: Engine) -> Any:
            PLACES.append(Place())
            async with asyncio.timeout(_BOUND):
                return await story(engine)

        return with_engine(SqliteStore(tmp_path), [Front], script, main, **settings)

    return tell


async def ask(engine: Engine, text: str = "hi") -> Run:
    """Ask the front, and return its run when it has ended."""
    submitted = await engine.submit("front", text, principal=ANN)
    return await engine.wait(submitted.run.id, ANN, timeout=_BOUND)


async def until_waiting(engine: Engine, run_id: str, *kinds: str) -> Run:
    """Return a run when it waits for all of these and nothing else."""
    while True:
        run = await engine.get_run(run_id, ANN)
        if run.status == "waiting" and sorted(one.kind for one in run.waiting_for) == sorted(kinds):
            return run
        assert not run.status.final, run
        await asyncio.sleep(0.005)


async def calls_of(engine: Engine, run: Run) -> list[ToolCall]:
    page = await engine.read_conversation(run.conversation_id, ANN)
    return [call for message in page.messages.items for call in message.calls]


async def events_of(engine: Engine, run_id: str) -> list[Event]:
    stream = await engine.follow(ANN, run_id=run_id)
    return [event async for batch in stream for event in batch]


def labels(events: list[Event]) -> list[str]:
    return [event.type.label for event in events]


def test_the_answer_of_an_asked_agent_is_the_calls_result_and_only_the_root_is_in_the_conversation(tell: Any) -> None:
    script = {
        "hi": [call("ask_desk", message="Note it"), "Done."],
        "Note it": [call("note", text="it"), "It is noted."],
    }

    async def story(engine: Engine) -> None:
        run = await ask(engine)
        assert (run.status, run.output) == ("completed", "Done.")
        (asked,) = await calls_of(engine, run)
        assert (asked.tool, asked.status) == ("ask_desk", CallStatus.DONE)
        assert asked.result is not None
        assert asked.result.startswith('"It is noted.')
        assert run.usage.requests == 4
        page = await engine.read_conversation(run.conversation_id, ANN)
        assert [message.text for message in page.messages.items] == ["hi", "", "Done."]
        assert [one.id for one in (await engine.list_runs(ANN)).items] == [run.id]
        child = await engine.get_run(child_run_id(asked.id), ANN)
        assert (child.agent, child.output, child.conversation_id) == ("desk", "It is noted.", run.conversation_id)
        assert (child.root_id, run.root_id, child.usage.requests) == (run.id, None, 2)
        with pytest.raises(NotFound):
            await engine.get_run(child.id, BEN)
        assert place().log == ["it for user:ann, acme, ['finance'], desk"]

    tell(script, story)


def test_the_stream_of_the_root_tells_the_progress_of_all_below_it_under_its_own_call_and_nothing_else(
    tell: Any,
) -> None:
    script = {
        "hi": [call("ask_desk", message="Pass it on"), "Done."],
        "Pass it on": [call("ask_archive", message="Note it"), "Passed on."],
        "Note it": [call("note", text="it"), "Noted."],
    }

    async def story(engine: Engine) -> None:
        run = await ask(engine)
        events = await events_of(engine, run.id)
        (asked,) = await calls_of(engine, run)
        told = [event for event in events if event.type.label.startswith("tool.")]
        assert labels(told) == ["tool.called", "tool.progress", "tool.completed"]
        assert {event.data["call_id"] for event in told} == {asked.id}
        assert told[1].data["text"] == "noting it"
        assert {event.data["run_id"] for event in events} == {run.id}
        assert "message.delta" not in labels(events)
        of_child = await events_of(engine, child_run_id(asked.id))
        assert labels(of_child)[:3] == ["run.queued", "message.completed", "run.started"]
        assert labels(of_child)[-1] == "run.completed"
        assert not {event.seq for event in events} & {event.seq for event in of_child}
        assert run.usage.requests == 6

    tell(script, story)


def test_pieces_of_a_childs_text_are_not_stored_because_nobody_reads_them(tmp_path: Path, with_engine: Any) -> None:
    stored: list[NewEvent] = []

    class Seen(SqliteStore):
        def write(self, change: Change) -> asyncio.Future[float | None]:
            stored.extend(event for event in change.events if event.type is EventType.MESSAGE_DELTA)
            return super().write(change)

    script = {"hi": [call("ask_desk", message="Talk"), "Done."], "Talk": [reply("One ", pause(0.05), "two ", "three.")]}

    async def story(engine: Engine) -> None:
        assert (await ask(engine)).output == "Done."
        told = len(stored)
        assert (await ask(engine, "Talk")).output == "One two three."
        assert (told, len(stored) > 0) == (0, True)

    with_engine(Seen(tmp_path), [Front], script, story)


def test_the_files_of_an_asked_agent_are_named_to_the_model_and_shown_with_the_roots_answer(tell: Any) -> None:
    script = {
        "hi": [call("ask_desk", message="Pass it on"), "Done."],
        "Pass it on": [call("ask_archive", message="Note it"), "Passed on."],
        "Note it": [call("note", text="it"), "Noted."],
    }

    async def story(engine: Engine) -> None:
        run = await ask(engine)
        page = await engine.read_conversation(run.conversation_id, ANN)
        (shown,) = page.messages.items[-1].files
        (asked,) = await calls_of(engine, run)
        assert asked.result is not None
        assert f"[file {shown}: 'it.txt', text/plain, 2 bytes]" in asked.result
        stored = await engine.files.get(shown, ANN)
        assert b"".join([part async for part in engine.files.read(stored, ANN)]) == b"it"

    tell(script, story)


def test_a_run_that_waits_for_others_takes_no_place(tell: Any) -> None:
    script = {
        "hi": [call("ask_desk", message="Pass it on"), "Done."],
        "Pass it on": [call("ask_archive", message="Note it"), "Passed on."],
        "Note it": [call("note", text="it"), "Noted."],
    }

    async def story(engine: Engine) -> None:
        assert (await ask(engine)).output == "Done."

    tell(script, story, concurrency=1)


def test_children_of_one_reply_run_together_up_to_the_limit_and_plain_tools_meanwhile(tell: Any) -> None:
    asked = [f"Hold {number}" for number in range(5)]
    script = {
        "hi": [reply(*(call("ask_archive", message=text) for text in asked), call("add", number=1)), "Done."],
        **{text: [call("hold"), f"{text} is over."] for text in asked},
    }

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        run = await until_waiting(engine, submitted.run.id, "child", "child")
        while place().running < 2:
            await asyncio.sleep(0.005)
        assert place().log == ["added 1"]
        assert [(one.tool, one.name) for one in run.waiting_for] == [("ask_archive", "archive")] * 2
        calls = await calls_of(engine, run)
        assert {one.call_id for one in run.waiting_for} == {calls[0].id, calls[1].id}
        place().go_on.set()
        run = await engine.wait(run.id, ANN, timeout=_BOUND)
        assert (run.output, place().most) == ("Done.", 2)
        results = [one.result for one in await calls_of(engine, run)]
        assert results == [*(f'"{text} is over."' for text in asked), "2"]
        assert run.usage.requests == 12

    tell(script, story, parallel_calls=2)


def test_the_next_child_begins_when_one_has_ended_though_a_tool_of_the_same_reply_still_runs(tell: Any) -> None:
    script = {
        "hi": [reply(call("hold"), call("ask_desk", message="Add 1"), call("ask_desk", message="Add 2")), "Done."],
        "Add 1": [call("add", number=1), "Added."],
        "Add 2": [call("add", number=2), "Added."],
    }

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        await place().reached.wait()
        while place().log != ["added 1", "added 2"]:
            await asyncio.sleep(0.005)
        assert place().running == 1
        place().go_on.set()
        assert (await engine.wait(submitted.run.id, ANN, timeout=_BOUND)).output == "Done."

    tell(script, story, parallel_calls=1)


def test_a_mixed_reply_goes_on_with_each_of_its_calls_and_the_model_is_asked_once_all_are_there(tell: Any) -> None:
    script = {
        "hi": [reply(call("ask_desk", message="Hold"), call("pay", amount=1), call("add", number=1)), "Done."],
        "Hold": [call("hold"), "Held."],
    }

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        run = await until_waiting(engine, submitted.run.id, "child", "approval")
        _, paying, adding = await calls_of(engine, run)
        assert adding.status is CallStatus.DONE
        await engine.decide(paying.id, ANN, "approve")
        await until_waiting(engine, run.id, "child")
        assert sorted(place().log) == ["added 1", "paid 1"]
        place().go_on.set()
        assert (await engine.wait(run.id, ANN, timeout=_BOUND)).output == "Done."

    tell(script, story)


def test_an_approval_of_a_child_stands_at_the_root_and_is_decided_there(tell: Any) -> None:
    script = {
        "hi": [call("ask_desk", message="Pay"), "Done."],
        "Pay": [reply(call("pay", amount=7), call("pay", amount=8)), "Paid."],
    }

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        run = await until_waiting(engine, submitted.run.id, "child", "approval", "approval")
        first, second = [one for one in run.waiting_for if one.kind == "approval"]
        assert (first.tool, first.arguments, first.call_id) == ("pay", '{"amount":7}', first.call_id)
        listed = await engine.list_approvals(ANN)
        assert [(one.call.id, one.run_id, one.agent) for one in listed.items] == [
            (first.call_id, run.id, "front"),
            (second.call_id, run.id, "front"),
        ]
        assert first.call_id is not None
        assert second.call_id is not None
        with pytest.raises(NotFound):
            await engine.decide(first.call_id, BEN, "approve", run_id=run.id)
        with pytest.raises(NotFound):
            await engine.decide(first.call_id, ANN, "approve", run_id="run_" + "0" * 26)
        with pytest.raises(NotFound):
            await engine.decide(first.call_id, ANN, "approve", agent="desk")
        _, view = await engine.decide(
            first.call_id, ANN, "approve", arguments={"amount": 9}, run_id=run.id, agent="front"
        )
        assert (view.run_id, view.agent) == (run.id, "front")
        await engine.decide(second.call_id, ANN, "decline", reason="too much", run_id=run.id)
        run = await engine.wait(run.id, ANN, timeout=_BOUND)
        assert (run.output, place().log) == ("Done.", ["paid 9"])
        told = [event for event in await events_of(engine, run.id) if event.data.get("call_id") == second.call_id]
        assert labels(told) == ["tool.called", "approval.requested", "approval.decided", "tool.completed"]
        assert (await engine.list_approvals(ANN)).items == ()

    tell(script, story)


def test_an_approval_of_a_child_that_expires_is_told_at_the_root(tell: Any) -> None:
    script = {"hi": [call("ask_desk", message="Pay"), "Done."], "Pay": [call("pay", amount=7), "Nobody decided."]}

    async def story(engine: Engine) -> None:
        run = await ask(engine)
        told = await events_of(engine, run.id)
        (requested,) = [event for event in told if event.type.label == "approval.requested"]
        (closed,) = [
            event
            for event in told
            if event.type.label == "tool.completed" and event.data["call_id"] == requested.data["call_id"]
        ]
        assert (closed.data["status"], run.output, place().log) == ("declined", "Done.", [])

    tell(script, story, approvals_expire_after=0.01)


def test_a_failed_child_is_an_error_that_tells_the_model_what_happened_and_the_parent_goes_on(tell: Any) -> None:
    script = {
        "hi": [reply(call("ask_desk", message="Fail"), call("ask_desk", message="Count")), "I am sorry."],
        "Fail": [fail(status=400, text="secret text of the provider")],
        "Count": [call("add", number=1), call("add", number=2), call("add", number=3)],
    }

    async def story(engine: Engine) -> None:
        run = await ask(engine)
        assert (run.status, run.output) == ("completed", "I am sorry.")
        failed, counted = await calls_of(engine, run)
        assert (failed.status, counted.status) == (CallStatus.FAILED, CallStatus.FAILED)
        assert failed.is_error
        assert failed.result is not None
        assert "The agent 'desk' did not finish: the model could not answer" in failed.result
        assert "(model_" in failed.result
        assert "secret" not in failed.result
        assert counted.result is not None
        assert "the run took more than 3 turns (max_turns). What it had done until then stays done." in counted.result

    tell(script, story)


def test_to_cancel_the_root_ends_all_below_it_and_tells_their_code(tell: Any) -> None:
    script = {
        "hi": [reply(call("ask_desk", message="Pass it on"), call("ask_desk", message="Pay"))],
        "Pass it on": [call("ask_archive", message="Hold")],
        "Hold": [call("hold")],
        "Pay": [call("pay", amount=1)],
    }

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        await until_waiting(engine, submitted.run.id, "child", "child", "approval")
        await place().reached.wait()
        run = await engine.cancel(submitted.run.id, ANN)
        assert (run.status, run.waiting_for) == ("cancelled", ())
        while place().running:
            await asyncio.sleep(0.005)
        assert place().log == ["stopped"]
        asked = await calls_of(engine, run)
        assert [one.status for one in asked] == [CallStatus.STOPPED] * 2
        child = await engine.get_run(child_run_id(asked[0].id), ANN)
        assert child.status == "cancelled"
        assert (await engine.list_approvals(ANN)).items == ()
        again = await engine.submit("front", "hello", principal=ANN, conversation_id=run.conversation_id)
        assert (await engine.wait(again.run.id, ANN, timeout=_BOUND)).output == "Hello again."

    tell({**script, "hello": ["Hello again."]}, story)


def test_a_child_that_is_cancelled_alone_is_a_stopped_call_and_its_parent_goes_on(tell: Any) -> None:
    script = {"hi": [call("ask_desk", message="Hold"), "It was stopped."], "Hold": [call("hold")]}

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        run = await until_waiting(engine, submitted.run.id, "child")
        await place().reached.wait()
        (asked,) = await calls_of(engine, run)
        child = await engine.cancel(child_run_id(asked.id), ANN)
        assert child.status == "cancelled"
        run = await engine.wait(run.id, ANN, timeout=_BOUND)
        (asked,) = await calls_of(engine, run)
        assert (run.output, asked.status, place().log) == ("It was stopped.", CallStatus.STOPPED, ["stopped"])

    tell(script, story)


def test_a_child_is_not_retried_but_its_root_is(tell: Any) -> None:
    script = {"hi": [call("ask_desk", message="Note it"), "Done."], "Note it": ["No."]}

    async def story(engine: Engine) -> None:
        run = await ask(engine)
        (asked,) = await calls_of(engine, run)
        with pytest.raises(Conflict, match=f"part of the run '{run.id}'") as refused:
            await engine.retry(child_run_id(asked.id), ANN)
        assert refused.value.code == "run_of_another"
        again = await engine.retry(run.id, ANN)
        again = await engine.wait(again.id, ANN, timeout=_BOUND)
        assert again.output == "Done."
        assert (await calls_of(engine, again))[1].id != asked.id

    tell(script, story)


def test_a_second_message_in_a_conversation_whose_run_asks_others_waits_behind_it(tell: Any) -> None:
    script = {
        "hi": [call("ask_desk", message="Hold"), "Done."],
        "Hold": [call("hold"), "Held."],
        "and then?": ["Nothing."],
    }

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        run = await until_waiting(engine, submitted.run.id, "child")
        await place().reached.wait()
        second = await engine.submit("front", "and then?", principal=ANN, conversation_id=run.conversation_id)
        assert second.run.status == "queued"
        place().go_on.set()
        assert (await engine.wait(second.run.id, ANN, timeout=_BOUND)).output == "Nothing."
        assert (await engine.get_run(run.id, ANN)).output == "Done."
        page = await engine.read_conversation(run.conversation_id, ANN)
        assert [message.text for message in page.messages.items] == ["hi", "", "Done.", "and then?", "Nothing."]

    tell(script, story)


def test_a_message_that_replaces_a_run_ends_all_below_it(tmp_path: Path, with_engine: Any) -> None:
    @agent(agents=[Desk])
    class Hasty:
        """You talk to people."""

    script = {"hi": [call("ask_desk", message="Hold")], "Hold": [call("hold")], "no": ["All right."]}

    async def story(engine: Engine) -> None:
        PLACES.append(Place())
        async with asyncio.timeout(_BOUND):
            submitted = await engine.submit("hasty", "hi", principal=ANN)
            await place().reached.wait()
            conversation = submitted.run.conversation_id
            second = await engine.submit("hasty", "no", principal=ANN, conversation_id=conversation)
            assert (await engine.wait(second.run.id, ANN, timeout=_BOUND)).output == "All right."
            assert (await engine.get_run(submitted.run.id, ANN)).status == "cancelled"
            assert place().log == ["stopped"]

    with_engine(SqliteStore(tmp_path), [Hasty], script, story)


def test_who_may_not_use_an_agent_does_not_see_the_tool_that_asks_it(tmp_path: Path, with_engine: Any) -> None:
    seen: list[list[str]] = []

    def model(request: Any) -> Any:
        seen.append([one.name for one in request.tools])
        return "Hello." if len(request.messages) > 1 else call("ask_vault", message="Open")

    @agent(allow=lambda principal: "finance" in principal.roles)
    class Vault:
        """You keep the money."""

    @agent(agents=[Vault, Archive])
    class Guard:
        """You talk to people."""

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("guard", "hi", principal=BEN)
        run = await engine.wait(submitted.run.id, BEN, timeout=_BOUND)
        assert run.output == "Hello."
        assert seen == [["ask_archive"]] * 2
        page = await engine.read_conversation(run.conversation_id, BEN)
        (refused,) = page.messages.items[1].calls
        assert refused.status is CallStatus.FAILED
        assert refused.result is not None
        assert "There is no tool 'ask_vault'; the tools are: ask_archive." in refused.result

    with_engine(SqliteStore(tmp_path), [Guard], model, story)


def test_an_empty_message_to_an_agent_is_refused_and_no_run_begins(tell: Any) -> None:
    script = {"hi": [call("ask_desk", message="  "), "I said nothing."]}

    async def story(engine: Engine) -> None:
        run = await ask(engine)
        (asked,) = await calls_of(engine, run)
        assert (run.output, asked.status, run.usage.requests) == ("I said nothing.", CallStatus.FAILED, 2)
        with pytest.raises(NotFound):
            await engine.get_run(child_run_id(asked.id), ANN)

    tell(script, story)
