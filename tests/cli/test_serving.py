"""Server processes as an operator meets them: started, stopped, killed, started wrongly."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from processes import clean_environment, free_port

TOKEN = "a-token-that-is-long-enough"
CALLER = {"AI_API_CALLERS_ACME": TOKEN}

SLOW_APP = {
    "app/__init__.py": "",
    "app/slow.py": '''
import asyncio, pathlib
from amoxi_py import ToolContext, agent, tool


@tool(idempotent=True)
async def boil_water(seconds: float, ctx: ToolContext) -> str:
    """Boil water for some seconds; it is still hot the second time."""
    with open("boiled.log", "a+") as log:
        log.seek(0)
        hot = log.read()
        log.write(f"{ctx.call_id} {ctx.attempt}\\n")
    await asyncio.sleep(0 if hot else seconds)
    return "it boils"


@agent(tools=[boil_water])
class Kettle:
    """You boil water."""
''',
}


def call(url: str, path: str, body: Any = None, **headers: str) -> Any:
    request = urllib.request.Request(
        url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {TOKEN}", **headers},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def wait_for(condition: Any, timeout: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").exists() else True


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and b"resource_tracker" not in command:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, "1"), (signal.SIGINT, "1"), (signal.SIGTERM, "2")])
def test_a_signal_stops_the_server_with_0(serve: Any, app_folder: Any, number: int, workers: str) -> None:
    server = serve(app_folder(), args=["--workers", workers], anew=True)
    server.process.send_signal(number)
    assert server.wait_exit(60) == 0
    assert "Traceback" not in server.log()


def test_dev_prints_its_address_when_it_is_ready_and_lets_visitors_in(serve: Any, app_folder: Any) -> None:
    server = serve(app_folder(settings={"app": {"name": "kiosk"}}), command="dev", wait_ready=False, anew=True)
    server.wait_log(f"kiosk is ready: http://localhost:{server.port}\n")
    with urllib.request.urlopen(f"{server.url}/agents", timeout=60) as answer:
        assert [agent["name"] for agent in json.loads(answer.read())["items"]] == ["echo"]
    assert server.stop() == 0


def test_what_dev_says_of_killing_it_is_its_own_group_where_it_leads_one(serve: Any, app_folder: Any) -> None:
    server = serve(app_folder(), command="dev")
    server.wait_log(f"to kill it in the middle of its work: kill -9 -{server.process.pid}\n")


def test_what_dev_says_of_killing_it_kills_all_of_it_and_not_the_script_that_started_it(app_folder: Any) -> None:
    folder = app_folder()
    with (folder / "dev.log").open("wb") as log:
        make = subprocess.Popen(
            ["sh", "-c", f"{sys.executable} -m amoxi_py dev --port 0; exit 7"],
            cwd=folder,
            env=clean_environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        printed = (folder / "dev.log").read_text
        said = wait_for(lambda: re.search(r"^to kill it .*: (kill -9 .*)$", printed(), re.MULTILINE))
        [supervisor] = children_of(make.pid)
        processes = [supervisor, *children_of(supervisor)]
        assert len(processes) == 2
        assert said[1] == f"kill -9 {supervisor} {processes[1]}"
        subprocess.run(said[1], shell=True, check=True)
        assert make.wait(60) == 7
        wait_for(lambda: not any(alive(pid) for pid in processes))
    finally:
        if make.poll() is None:
            os.killpg(make.pid, signal.SIGKILL)
            make.wait(60)


def test_dev_starts_again_on_a_save_and_survives_a_bad_one(serve: Any, app_folder: Any) -> None:
    folder = app_folder()
    server = serve(folder, command="dev")
    source = folder / "app" / "echo.py"
    text = source.read_text("utf-8")

    def agents() -> list[str]:
        try:
            with urllib.request.urlopen(f"{server.url}/agents", timeout=5) as answer:
                return [agent["name"] for agent in json.loads(answer.read())["items"]]
        except OSError:
            return []

    source.write_text(text.replace("class Echo", "class Parrot"), "utf-8")
    wait_for(lambda: agents() == ["parrot"])
    source.write_text(text.replace("@tool(read_only=True)", "@tool(read_only=True, retries=-1)\n@@"), "utf-8")
    server.wait_log("mistake in the app's declarations")
    assert server.process.poll() is None
    source.write_text(text, "utf-8")
    wait_for(lambda: agents() == ["echo"])
    assert server.stop() == 0


def test_the_production_server_lets_nobody_in_without_a_token(serve: Any, app_folder: Any) -> None:
    server = serve(app_folder(), env=CALLER)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{server.url}/agents", timeout=60)
    assert refused.value.code == 401
    refused.value.close()
    assert call(server.url, "/agents")["items"][0]["name"] == "echo"


@pytest.mark.parametrize(("trusted", "secure"), [("127.0.0.0/8", True), ("10.0.0.0/8", False)])
def test_only_a_trusted_proxy_says_that_a_visitor_came_by_https(
    serve: Any, app_folder: Any, trusted: str, secure: bool
) -> None:
    server = serve(app_folder(), env={"SERVER_TRUSTED_PROXIES": trusted, "AI_HTTP_ANONYMOUS": "true"})
    came_by_https = urllib.request.Request(f"{server.url}/agents", headers={"x-forwarded-proto": "https"})
    with urllib.request.urlopen(came_by_https, timeout=60) as answer:
        assert ("Secure" in answer.headers["set-cookie"]) is secure


def test_several_processes_share_one_port_and_one_store(serve: Any, app_folder: Any) -> None:
    server = serve(app_folder(), env=CALLER, args=["--workers", "2"])
    ids = [call(server.url, "/agents/echo/runs", {"message": "Look up thing T-1"})["id"] for _ in range(6)]
    for run_id in ids:
        wait_for(lambda run_id=run_id: call(server.url, f"/runs/{run_id}")["status"] == "completed")


def test_a_process_that_dies_is_replaced(serve: Any, app_folder: Any) -> None:
    server = serve(app_folder(), env=CALLER, args=["--workers", "2"])
    server.wait_log("(2 processes)")
    victim = children_of(server.pid)[0]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len(running := children_of(server.pid)) == 2 and victim not in running)
    assert call(server.url, "/agents")["items"][0]["name"] == "echo"
    assert server.stop() == 0


def test_when_the_supervisor_is_killed_its_processes_stop(serve: Any, app_folder: Any) -> None:
    server = serve(app_folder(), args=["--workers", "2"])
    children = wait_for(lambda: found if len(found := children_of(server.pid)) == 2 else None)
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not any(alive(child) for child in children))


@pytest.mark.parametrize(
    ("command", "args"), [("start", ["--workers", "1"]), ("start", ["--workers", "2"]), ("dev", [])]
)
def test_the_port_can_come_from_a_file(serve: Any, app_folder: Any, command: str, args: list[str]) -> None:
    folder = app_folder()
    port = free_port()
    (folder / "port").write_text(f"{port}\n", "utf-8")
    env = {"SERVER_PORT": "", "SERVER_PORT_FILE": str(folder / "port")}
    server = serve(folder, command=command, args=args, env=env, port=port)
    server.wait_log(f"is ready: http://localhost:{port}")
    assert server.stop() == 0


def test_the_options_of_a_command_win_over_the_settings(serve: Any, app_folder: Any) -> None:
    folder = app_folder(settings={"server": {"host": "no-such-host.invalid"}})
    port = free_port()
    server = serve(
        folder, args=["--workers", "2", "--host", "127.0.0.1", "--port", str(port)], env={"SERVER_PORT": ""}, port=port
    )
    server.wait_log(f"is ready: http://localhost:{port} (2 processes)")


@pytest.mark.parametrize(("allowed", "warned"), [("1", True), ("2", False)])
def test_fewer_model_requests_than_processes_are_warned_about(
    serve: Any, app_folder: Any, allowed: str, warned: bool
) -> None:
    server = serve(app_folder(), args=["--workers", "2"], env={"AI_MODELS_CONCURRENCY": allowed}, wait_ready=False)
    server.wait_log("(2 processes)")
    told = "'ai.models.concurrency' is 1, but each of the 2 processes makes one at once"
    assert (told in server.log()) is warned


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_in_use_is_one_clear_line_and_1(serve: Any, app_folder: Any, workers: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = serve(app_folder(), args=["--workers", workers], port=port, wait_ready=False)
        assert server.wait_exit() == 1
    assert server.log().startswith(f"amoxi: port {port} of '127.0.0.1' is in use")
    assert len(server.log().splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "args"), [("start", ["--workers", "1"]), ("start", ["--workers", "2"]), ("dev", []), ("worker", [])]
)
def test_a_mistake_in_a_declaration_stops_the_start_with_its_message(
    serve: Any, app_folder: Any, command: str, args: list[str]
) -> None:
    files = {"app/__init__.py": "", "app/bad.py": "from amoxi_py import tool\n\n\n@tool\ndef guess(x):\n    'Guess.'\n"}
    server = serve(app_folder(files), command=command, args=args, wait_ready=False)
    assert server.wait_exit() == 1
    assert server.log().count("'guess'") == 1
    assert "Traceback" not in server.log()


BAD_MODELS = """
from amoxi_py import agent, tool

@tool
def guess(x):
    'Guess.'
"""


def test_models_that_cannot_be_used_are_told_with_the_other_mistakes(serve: Any, app_folder: Any) -> None:
    models = {"A": "42", "B": "['offline', 42]", "C": "[]", "D": "'openai:m'", "E": "'acme:m'"}
    agents = "".join(f"\n@agent(model={spec})\nclass {name}:\n    'Help.'\n" for name, spec in models.items())
    server = serve(app_folder({"app/__init__.py": "", "app/bad.py": BAD_MODELS + agents}), wait_ready=False)
    assert server.wait_exit() == 1
    head, *told = server.log().splitlines()
    assert head == "amoxi: 6 mistakes in the app's declarations:"
    assert "tool 'guess'" in told[0]
    for line, name, part in zip(
        told[1:],
        "abcde",
        ["42 is no model", "42 is no model", "names no model", "needs OPENAI_API_KEY", "Unknown model: acme:m"],
        strict=True,
    ):
        assert line.startswith(f"  - app.bad: agent {name!r}: `model"), line
        assert part in line


def test_a_model_of_the_settings_that_cannot_be_used_is_told_with_its_source(serve: Any, app_folder: Any) -> None:
    server = serve(app_folder(), env={"AI_MODEL": "acme:m"}, wait_ready=False)
    assert server.wait_exit() == 1
    told = "the settings cannot be used:\n  - 'ai.model' from AI_MODEL: the model 'acme:m' cannot be used"
    assert told in server.log()


@pytest.mark.parametrize("command", ["start", "dev", "worker", "migrate"])
def test_a_folder_without_an_app_is_told_so(serve: Any, app_folder: Any, command: str) -> None:
    folder = app_folder({})
    server = serve(folder, command=command, wait_ready=False)
    assert server.wait_exit() == 1
    assert "there is no package 'app' here" in server.log()
    assert not (folder / "data").exists()


@pytest.mark.parametrize("path", ["notes.txt", "notes.txt/ai"])
def test_a_file_in_the_place_of_the_stores_folder_is_told_with_its_setting(
    serve: Any, app_folder: Any, path: str
) -> None:
    folder = app_folder()
    (folder / "notes.txt").write_text("x", "utf-8")
    server = serve(folder, env={"AI_STORE_PATH": path}, wait_ready=False)
    assert server.wait_exit() == 1
    assert f"'ai.store.path' from AI_STORE_PATH is {path!r}" in server.log()
    assert f"{str(folder.resolve() / 'notes.txt')!r} is a file: name another folder" in server.log()


def test_create_app_inside_the_apps_package_stops_the_start_and_says_so(serve: Any, app_folder: Any) -> None:
    files = {"app/__init__.py": "", "app/main.py": "from amoxi_py import create_app\n\napp = create_app()\n"}
    server = serve(app_folder(files), wait_ready=False)
    assert server.wait_exit() == 1
    assert "create_app()" in server.log()
    assert "Traceback" not in server.log()


def test_a_damaged_store_stops_the_start_with_its_name(serve: Any, app_folder: Any) -> None:
    folder = app_folder()
    serve(folder).stop()
    [database] = [file for file in (folder / "data" / "ai").glob("*.db") if file.read_bytes()[:6] == b"SQLite"]
    database.write_bytes(b"SQLite format 3\x00" + b"garbage" * 1000)
    server = serve(folder, args=["--workers", "2"], wait_ready=False)
    assert server.wait_exit() == 1
    assert server.log().count("is damaged") == 1
    assert database.name in server.log()
    assert "Traceback" not in server.log()


def test_migrate_makes_the_store_and_says_where_it_is(serve: Any, app_folder: Any) -> None:
    folder = app_folder()
    command = serve(folder, command="migrate", wait_ready=False)
    assert command.wait_exit() == 0
    assert f"the store in {folder.resolve() / 'data' / 'ai'} is up to date" in command.log()


def test_a_worker_executes_what_a_server_without_a_worker_accepts(serve: Any, app_folder: Any) -> None:
    folder = app_folder()
    server = serve(folder, env={**CALLER, "AI_RUNS_WORKER": "false"})
    run_id = call(server.url, "/agents/echo/runs", {"message": "Look up thing T-1"})["id"]
    assert call(server.url, f"/agents/echo/runs/{run_id}")["status"] == "queued"
    worker = serve(folder, command="worker", wait_ready=False)
    wait_for(lambda: call(server.url, f"/runs/{run_id}")["status"] == "completed")
    assert worker.stop() == 0


def test_a_stop_with_open_streams_ends_within_the_grace_and_hands_the_run_over(serve: Any, app_folder: Any) -> None:
    folder = app_folder(SLOW_APP, {"server": {"stop-grace-s": 1}, "ai": {"runs": {"lease-ms": 60000}}})
    server = serve(folder, env=CALLER)
    run_id = call(server.url, "/agents/kettle/runs", {"message": "boil water for 100 seconds"})["id"]
    wait_for((folder / "boiled.log").exists)
    request = urllib.request.Request(f"{server.url}/runs/{run_id}/events", headers={"authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=60) as stream:
        stream.readline()
        before = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert "run.completed" not in stream.read().decode()
        assert server.wait_exit(60) == 0
        assert time.monotonic() - before < 1 + 40
    again = serve(folder, env=CALLER)
    wait_for(lambda: len((folder / "boiled.log").read_text().splitlines()) == 2)
    lines = [line.split(" ") for line in (folder / "boiled.log").read_text().splitlines()]
    assert lines[0][0] == lines[1][0]
    run = wait_for(lambda: run if (run := call(again.url, f"/runs/{run_id}"))["status"] == "completed" else None)
    assert run["attempt"] == 1


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_tool_that_ends_within_the_grace_is_waited_for_also_after_a_second_signal(
    serve: Any, app_folder: Any
) -> None:
    folder = app_folder(SLOW_APP, {"server": {"stop-grace-s": 10}})
    server = serve(folder, env=CALLER)
    run_id = call(server.url, "/agents/kettle/runs", {"message": "boil water for 2 seconds"})["id"]
    wait_for((folder / "boiled.log").exists)
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: refuses(server.port))
    server.process.send_signal(signal.SIGINT)
    assert server.wait_exit(60) == 0
    assert len((folder / "boiled.log").read_text().splitlines()) == 1
    again = serve(folder, env=CALLER)
    wait_for(lambda: call(again.url, f"/runs/{run_id}")["status"] == "completed")
    assert len((folder / "boiled.log").read_text().splitlines()) == 1


def test_any_asgi_server_can_serve_the_app(app_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    from amoxi_py import create_app

    files = {
        "kiosk/__init__.py": "",
        "kiosk/echo.py": "from amoxi_py import agent\n\n\n@agent\nclass Echo:\n    'You echo.'\n",
    }
    monkeypatch.chdir(app_folder(files, {"app": {"package": "kiosk"}}))
    with TestClient(create_app(profile="dev")) as client:
        assert client.get("/health/ready").status_code == 200
        assert client.get("/agents").json()["items"][0]["name"] == "echo"
