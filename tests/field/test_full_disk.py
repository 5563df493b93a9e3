"""O07: a disk that fills up while a server runs costs answers, not what was stored, and nothing when it has room."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from amoxi_py.ports.chat_model import ModelRequest, ToolResult
from amoxi_py.testing import call

KEEPING = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool
async def keep(name: str, ctx: ToolContext) -> str:
    """Keep something, once."""
    note("kept", ctx, name=name)
    await gate(name)
    note("done", ctx, name=name)
    return "y" * 20_000


@agent(tools=[keep])
class Keeper:
    """You keep."""
'''


def keep_what_is_named(request: ModelRequest) -> Any:
    last = request.messages[-1]
    return "Kept." if isinstance(last, ToolResult) else call("keep", name=last.text.split()[0])  # type: ignore[union-attr]


def fill_disk(pid: int, folder: Any) -> None:
    """Let no file of the process grow any more: every write beyond what there is fails, as on a full disk."""
    size = (folder / "data" / "ai" / "amoxi.db-wal").stat().st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def make_room(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.crash
def test_a_disk_that_fills_up_is_told_loses_nothing_and_the_server_goes_on_when_there_is_room(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, until: Any, one_story: Any
) -> None:
    folder = field_app(KEEPING)
    server = start(folder, env=model_env(strict_model(keep_what_is_named)))
    api = client(server)
    folder.open_gate("early")
    early = api.submit("keeper", "early", wait=10)
    assert early["status"] == "completed"
    running = api.submit("keeper", "slow")
    follower = reader(server, running)
    until(lambda: folder.ledger("kept", name="slow"))
    stored = {run["id"] for run in api.get_path("/runs").json()["items"]}
    events, messages = api.events(early["id"]), api.messages("keeper", early["conversation_id"])

    fill_disk(server.pid, folder)
    answers = [api.post_path("/agents/keeper/runs", {"message": f"late{n} " + "x" * 5000}) for n in range(20)]
    assert {answer.status_code for answer in answers} == {503}
    for answer in answers:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "store_unavailable"
        assert str(folder.path) not in answer.text
    folder.open_gate("slow")
    until(lambda: folder.ledger("done", name="slow"), 20, "a tool that runs is not hurt")
    until(lambda: "cannot be used now" in server.log())
    assert api.run(early["id"])["status"] == "completed", "what is stored can be read"
    assert api.events(early["id"]) == events
    assert api.cancel(early["id"])["status"] == "completed"
    assert server.process.poll() is None

    make_room(server.pid)
    ended = api.until_status(running["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 1), "its result was kept until it could be stored"
    one_story(follower.wait_end())
    assert len(folder.ledger("kept", name="slow")) == 1
    folder.open_gate("again")
    assert api.submit("keeper", "again", wait=20)["status"] == "completed"
    listed = {run["id"] for run in api.get_path("/runs").json()["items"]}
    assert stored <= listed
    assert len(listed) == len(stored) + 1, "what was answered with an error is not stored"
    server.kill9()
    api = client(start(folder, env=model_env(strict_model(keep_what_is_named))))
    assert {run["id"] for run in api.get_path("/runs").json()["items"]} == listed
    assert api.events(early["id"]) == events
    assert api.messages("keeper", early["conversation_id"]) == messages


@pytest.mark.crash
def test_a_server_killed_on_a_full_disk_has_all_that_it_answered_for_after_the_next_start(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(KEEPING)
    env = model_env(strict_model(keep_what_is_named))
    server = start(folder, env=env)
    api = client(server)
    stored: list[str] = []
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1_500_000, resource.RLIM_INFINITY))
    while True:
        answer = api.post_path("/agents/keeper/runs", {"message": f"n{len(stored)} " + "x" * 20_000})
        if answer.status_code != 202:
            break
        stored.append(answer.json()["id"])
    assert answer.status_code == 503
    assert len(stored) > 5
    server.kill9()
    api = client(start(folder, env=env))
    assert {run["id"] for run in api.get_path("/runs", params={"limit": "200"}).json()["items"]} == set(stored)
    for number, run_id in enumerate(stored):
        folder.open_gate(f"n{number}")
        assert api.until_status(run_id)["status"] == "completed"
