"""`amoxi dev` changes the running app for the one that was saved, and loses no run, no reader and no request by it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.crash

ENV = {"SERVER_STOP_GRACE_S": "20", "AI_RUNS_LEASE_MS": "60000"}
GOES_ON_WITHIN_S = 15.0  # neither the lease (60 s) nor the grace (20 s) is waited for; a start takes a second or two

APP = '''
from amoxi_py import SyncToolContext, ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call, reply
from .ledger import gate, gate_sync, note


@tool(idempotent=True)
async def long(ctx: ToolContext) -> str:
    """End when the gate is opened."""
    note("long", ctx)
    await ctx.step("one", put, ctx)
    await ctx.step("two", wait_long)
    return "long"


async def put(ctx: ToolContext) -> None:
    note("step", ctx)


async def wait_long() -> None:
    note("second step")
    await gate("long")


@tool
async def unsafe(ctx: ToolContext) -> str:
    """Nobody may do that twice."""
    note("unsafe", ctx)
    await gate("costly")
    return "unsafe"


@tool(read_only=True)
def thread(ctx: SyncToolContext) -> str:
    """Compute in a thread."""
    note("thread", ctx)
    gate_sync("costly")
    return "thread"


class FromFile:
    """Waits for a gate in the middle of an answer."""

    async def wait(self):
        note("answering")
        await gate("answer")


NAMES = ("long", "unsafe", "thread")
SCRIPT = {name: [call(name), f"{name} done"] for name in NAMES} | {
    "hello": ["first version"], "model": [reply("It ", FromFile(), "is said.")]
}


@agent(tools=[long, unsafe, thread], model=ScriptedModel(SCRIPT), on_busy="queue")
class Saver:
    """You are saved."""
'''
READY = re.compile(r"the new version answers after [\d.]+ s")


def save(folder: Any, before: str, after: str) -> None:
    source = folder / "app" / "agents.py"
    text = source.read_text("utf-8")
    assert before in text
    source.write_text(text.replace(before, after), "utf-8")


def reloads(server: Any) -> int:
    return len(READY.findall(server.log()))


def test_runs_in_their_middle_go_on_at_once_in_the_new_process(
    field_app: Any, start: Any, client: Any, reader: Any, until: Any, one_story: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, command="dev", env=ENV)
    api = client(server)
    runs = {name: api.submit("saver", name) for name in ("long", "model")}
    until(lambda: folder.ledger("second step") and folder.ledger("answering"))
    readers = {name: reader(server, run) for name, run in runs.items()}
    for follower in readers.values():
        follower.wait_for("run.started")
    [old] = folder.ledger("long")
    saved_at = time.monotonic()
    save(folder, "first version", "second version")
    until(lambda: len(folder.ledger("second step")) == 2 and len(folder.ledger("answering")) == 2)
    assert time.monotonic() - saved_at < GOES_ON_WITHIN_S
    [line] = folder.ledger("long")[1:]
    assert line["pid"] != old["pid"]
    assert line["call"] == old["call"]
    folder.open_gate("long")
    folder.open_gate("answer")
    for name, run in runs.items():
        ended = api.until_status(run["id"], patient=True)
        assert (ended["status"], ended["attempt"]) == ("completed", 1), name
        one_story(readers[name].wait_end())
        assert readers[name].connections >= 2, "the reader came again by itself"
        assert len([event for event in readers[name].events if event.type == "run.resumed"]) == 1
    assert len(folder.ledger("step")) == 1, "a recorded step is not run again"
    assert api.submit("saver", "hello", wait=10)["output"] == "second version"
    assert "Traceback" not in server.log()
    assert server.stop() == 0


def test_what_cannot_be_cut_off_ends_in_the_old_process_while_the_new_one_serves(
    field_app: Any, start: Any, client: Any, until: Any, one_story: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, command="dev", env=ENV)
    api = client(server)
    runs = {name: api.submit("saver", name) for name in ("unsafe", "thread")}
    until(lambda: folder.ledger("unsafe") and folder.ledger("thread"))
    save(folder, "first version", "second version")
    until(lambda: reloads(server) == 1)
    assert client(server).submit("saver", "hello", wait=10)["output"] == "second version"
    assert all(client(server).run(run["id"])["status"] == "running" for run in runs.values())
    folder.open_gate("costly")
    for name, run in runs.items():
        ended = client(server).until_status(run["id"], patient=True)
        assert (ended["status"], ended["attempt"], ended["output"]) == ("completed", 1, f"{name} done")
        [told] = [event for event in client(server).events(run["id"], after=0) if event.type == "tool.completed"]
        assert (told.data["result"], told.data["is_error"]) == (name, False)
        one_story(client(server).events(run["id"], after=0))
    assert len(folder.ledger("unsafe")) == len(folder.ledger("thread")) == 1
    assert server.stop() == 0


def test_a_mistake_leaves_the_app_as_it_was_and_says_where_it_is(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, command="dev", env=ENV)
    api = client(server)
    run = api.submit("saver", "long")
    until(lambda: folder.ledger("second step"))
    save(folder, '["first version"]', '["first version"')
    server.wait_log("the version before goes on until the next save")
    assert "SyntaxError" in server.log()
    assert re.search(r"agents\.py, line \d+", server.log())
    assert api.submit("saver", "hello", wait=10)["output"] == "first version"
    assert len(folder.ledger("long")) == 1, "the run was left alone"
    save(folder, '["first version"', '["third version"]')
    until(lambda: reloads(server) == 1)
    assert client(server).submit("saver", "hello", wait=10)["output"] == "third version"
    folder.open_gate("long")
    assert client(server).until_status(run["id"], patient=True)["attempt"] == 1


FAILING_START = """

from amoxi_py import singleton


@singleton
class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no such database")
"""


def test_an_app_that_fails_while_it_starts_is_told_and_recovers_at_the_next_save(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, command="dev", env=ENV)
    source = folder / "app" / "agents.py"
    text = source.read_text("utf-8")
    source.write_text(text + FAILING_START, "utf-8")
    server.wait_log("nothing answers until the next save")
    assert "no such database" in server.log()
    assert server.process.poll() is None
    source.write_text(text, "utf-8")
    until(lambda: reloads(server) == 1)
    assert client(server).submit("saver", "hello", wait=10)["output"] == "first version"


def test_a_burst_of_saves_is_one_reload_and_requests_meanwhile_are_answered(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, command="dev", env=ENV)
    for number in range(8):
        save(folder, "first version" if number == 0 else f"version {number - 1}", f"version {number}")
        (folder / "app" / f"part_{number}.py").write_text("", "utf-8")
    asked: list[str] = []

    def changed() -> bool:
        try:
            run = client(server).submit("saver", "hello", wait=10)
        except httpx2.TransportError:  # a connection that was open when its process left
            return False
        asked.append(run["id"])
        return bool(run["output"] == "version 7")

    until(changed)
    ended = [client(server).until_status(run_id) for run_id in asked]
    assert {run["output"] for run in ended} <= {"first version", "version 7"}
    assert {run["attempt"] for run in ended} == {1}
    assert server.log().count("starting the app anew") == 1
    assert reloads(server) == 1


def test_what_the_app_and_editors_write_is_no_save(field_app: Any, start: Any, client: Any, until: Any) -> None:
    folder = field_app(APP, data="")
    server = start(folder, command="dev", env=ENV)
    app = folder / "app"
    for name in ("data", "__pycache__", "static", "tests", ".idea"):
        (app / name).mkdir(exist_ok=True)
        (app / name / "written.py").write_text("x = 1\n", "utf-8")
    for name in (".agents.py.swp", "agents.py~", "4913", ".#agents.py", "#agents.py#", "agents.pyc", "ledger.jsonl"):
        (app / name).write_text("x", "utf-8")
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "notes.txt").write_text("x", "utf-8")
    assert client(server).submit("saver", "hello", wait=10)["output"] == "first version"
    save(folder, "first version", "second version")  # noticed after all of these, so they were looked at by then
    until(lambda: reloads(server) == 1)
    assert server.log().count("starting the app anew") == 1
    assert "amoxi: app/agents.py changed; starting the app anew" in server.log()


HANDOVER = """
import json, os, signal, sys, threading
from multiprocessing import Pipe
from pathlib import Path

from amoxi_py.cli.reloader import Reloader

LOG, VERSION = Path("log"), Path("version")


def tell(what):
    with LOG.open("a") as log:
        log.write(f"{what}\\n")


def server(lead):
    version = VERSION.read_text()
    if version == "broken":
        sys.exit(1)
    lead.on_hand_over = lambda: (tell(f"{version} is let go"), threading.Event().wait())  # a thread goes on in it
    lead.wait_to_begin()
    tell(f"{version} serves")
    lead.say_ready()
    while True:
        signal.pause()


if __name__ == "__main__":
    saves, told = Pipe(duplex=False)

    def save():
        for version in sys.stdin:
            VERSION.write_text(version.strip())
            told.send_bytes(json.dumps(["app.py"]).encode())

    threading.Thread(target=save, daemon=True).start()
    sys.exit(Reloader(server, (), greeting="ready", grace=1, saves=saves).run())
"""


def test_a_broken_save_during_a_handover_leaves_the_version_that_takes_over(tmp_path: Path, until: Any) -> None:
    (tmp_path / "dev.py").write_text(HANDOVER, "utf-8")
    (tmp_path / "version").write_text("first", "utf-8")
    log = tmp_path / "log"
    log.touch()
    with (tmp_path / "said").open("wb") as said:
        dev = subprocess.Popen(
            [sys.executable, "dev.py"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=said, stderr=said, text=True
        )
    assert dev.stdin is not None
    try:
        until(lambda: "first serves" in log.read_text())
        dev.stdin.write("second\n")
        dev.stdin.flush()
        until(lambda: "first is let go" in log.read_text())
        dev.stdin.write("broken\n")
        dev.stdin.flush()
        until(lambda: "version before goes on until the next save" in (tmp_path / "said").read_text())
        assert log.read_text().splitlines()[-1] == "second serves"
        assert "nothing answers" not in (tmp_path / "said").read_text()
    finally:
        dev.stdin.close()
        dev.terminate()
        assert dev.wait(20) == 0


def test_settings_are_sources_too(field_app: Any, start: Any, client: Any, until: Any) -> None:
    folder = field_app(APP)
    server = start(folder, command="dev", env=ENV)
    (folder / "application.json").write_text('{"app": {"nmae": "kiosk"}}', "utf-8")
    server.wait_log("the version before goes on until the next save")
    assert "'app.nmae' in application.json is no setting; did you mean 'app.name'?" in server.log()
    (folder / "application.json").write_text('{"app": {"name": "kiosk"}}', "utf-8")
    until(lambda: reloads(server) == 1)
    assert client(server).get_path("/openapi.json").json()["info"]["title"] == "kiosk"
