"""O14 across servers: who reads on a server that does not execute the run has the same story as everybody else."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.testing import call, pause, reply

pytestmark = pytest.mark.parametrize("store_kind", ["postgres"], indirect=True)

TALKING = '''
import asyncio
from amoxi_py import ToolContext, agent, tool
from .ledger import note


@tool(read_only=True)
async def look(thing: str, ctx: ToolContext) -> str:
    """Look at a thing."""
    note("look", ctx)
    for number in range(5):
        ctx.progress(f"{thing} {number}")
        await asyncio.sleep(0.02)
    return f"saw {thing}"


@agent(tools=[look])
class Talker:
    """You talk."""
'''


def words(first: int, count: int) -> list[Any]:
    return [part for number in range(first, first + count) for part in (f"word{number} ", pause(0.01))]


STORY = [
    reply(*words(0, 70), call("look", thing="a")),
    reply(*words(70, 70), call("look", thing="b"), call("look", thing="c")),
    reply(*words(140, 60)),
]


def without_deltas(events: list[Any]) -> list[Any]:
    return [event for event in events if event.type != "message.delta"]


def said_in(events: list[Any]) -> list[str]:
    messages = [event.data["message"] for event in events if event.type == "message.completed"]
    return " ".join(one["text"] for one in messages if one["role"] == "assistant").split()


@pytest.mark.crash
def test_readers_on_every_server_who_stay_drop_come_back_and_come_late_have_the_same_story_once(
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    strict_model: Any,
    model_env: Any,
    one_story: Any,
) -> None:
    folder = field_app(TALKING)
    env = model_env(strict_model(STORY))
    executing, serving = start(folder, env=env), start(folder, env={**env, "AI_RUNS_WORKER": "false"})
    here, there = client(executing), client(serving)
    run = there.submit("talker", "tell")
    path = f"/runs/{run['id']}/events"
    staying = [reader(executing, run), reader(serving, run), reader(serving, run)]
    with there.follow(path) as events:
        dropped = [next(events) for _ in range(20)]
    with here.follow(path, after=dropped[-1].id) as events:
        dropped += [next(events) for _ in range(20)]
    stories = [one.wait_end() for one in staying]
    for story in stories:
        one_story(story)
        # a server that hears of pieces a moment after their message was finished has the message in their place
        assert without_deltas(story) == without_deltas(stories[0]), "none shares events with another, or misses one"
        assert sum(event.type == "message.delta" for event in story) > 20
    whole = stories[0]
    assert sum(event.type == "message.delta" for event in dropped) > 10
    assert sum(event.type == "tool.progress" for event in whole) == 15
    assert said_in(whole) == [f"word{number}" for number in range(200)]
    executing.kill9()
    other = client(start(folder, env=env))
    for api in (there, other):
        rest = api.events(run["id"], after=dropped[-1].id)
        late = api.events(run["id"])
        one_story(late)
        assert late == without_deltas(whole)
        assert without_deltas(dropped + rest) == late
        assert api.get_path(path, headers={"last-event-id": str(whole[-1].id)}).status_code == 204
    assert len(folder.ledger("look")) == 3


def test_a_run_goes_on_when_all_its_readers_on_another_server_leave_or_their_server_dies(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, one_story: Any
) -> None:
    folder = field_app(TALKING)
    env = model_env(strict_model(STORY))
    executing, serving = start(folder, env=env), start(folder, env={**env, "AI_RUNS_WORKER": "false"})
    here = client(executing)
    left, cut = here.submit("talker", "tell"), here.submit("talker", "tell")
    for _ in range(5):
        one = client(serving)
        with one.follow(f"/runs/{left['id']}/events") as events:
            next(events)
        one.http.close()
    follower = reader(serving, cut)
    follower.wait_for("message.delta")
    serving.kill9()
    follower.moved(executing.url)
    one_story(follower.wait_end())
    assert follower.connections == 2
    for run in (left, cut):
        assert here.until_status(run["id"])["status"] == "completed"
        one_story(here.events(run["id"]))
