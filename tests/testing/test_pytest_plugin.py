"""The pytest plugin, in projects of its own: an app's tests with its fixtures, and one that knows nothing of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from processes import clean_environment

APP = '''
from amoxi_py import agent, configure, singleton, tool


@singleton
class Clock:
    def now(self) -> str:
        raise RuntimeError("the real clock")


@singleton
class Tools:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    @tool(read_only=True)
    def tell_time(self) -> str:
        """Tell the time."""
        return self.clock.now()

    @tool(needs_approval=True)
    def stop_clock(self) -> str:
        """Stop the clock."""
        return "stopped"


@agent(tools=[Tools])
class Butler:
    """You tell the time."""


@configure
def pages(app) -> None:
    @app.get("/hello")
    async def hello():
        return {"hello": "world"}
'''

FIXTURES = """
from pathlib import Path

import httpx2
import pytest

from amoxi_py.testing import call
from watch.app import Clock


class Noon(Clock):
    def now(self) -> str:
        return "noon"


@pytest.fixture
def amoxi_replace():
    return {Clock: Noon()}


@pytest.fixture
def amoxi_model(scripted_model):
    return scripted_model({
        "Time?": [call("tell_time"), "It is noon."],
        "Stop": [call("stop_clock"), "Settled."],
        "Hi": ["Hel", "lo"],
    })


def test_the_whole_app_answers(amoxi_client, amoxi_app):
    run = amoxi_client.submit("butler", "Time?", wait=20)
    assert (run["status"], run["output"]) == ("completed", "It is noon.")
    [asked, answer, last] = amoxi_client.messages("butler", run["conversation_id"])
    assert answer["calls"][0]["result"] == "noon"
    assert amoxi_client.http.get("/hello").json() == {"hello": "world"}
    assert amoxi_app.client().http.get(f"/runs/{run['id']}").status_code == 404, "another visitor"


def test_an_approval_and_its_events(amoxi_client):
    run = amoxi_client.submit("butler", "Stop")
    [waiting] = amoxi_client.until_status(run["id"], "waiting")["waiting_for"]
    with pytest.raises(AssertionError, match="has not ended within 0 s.*stop_clock"):
        amoxi_client.events(run["id"], timeout=0)
    assert amoxi_client.decide(run["id"], waiting["call_id"], "decline", reason="no")["decision"] == "decline"
    types = [event.type for event in amoxi_client.events(run["id"])]
    assert types[-1] == "run.completed"
    assert "approval.decided" in types


def test_a_stream_that_is_open_does_not_hold_the_end_up(amoxi_client):
    run = amoxi_client.submit("butler", "Stop")
    with amoxi_client.follow(f"/runs/{run['id']}/events") as events:
        assert next(events).type == "run.queued"


def test_the_settings_are_the_apps_own(amoxi_app, amoxi_folder):
    assert Path.cwd() == amoxi_folder
    assert httpx2.get(amoxi_app.url + "/agents").status_code == 404
    assert amoxi_app.client().http.get("/agents").json()["items"][0]["name"] == "butler"


@pytest.fixture
def amoxi_settings(request):
    return {"ai.http.prefix": "/ai"} if "settings" in request.node.name else {}
"""

REFUSED = """
from amoxi_py.testing import call, run_agent
from watch.app import Butler


def test_too_short_a_script(amoxi_folder, scripted_model):
    model = scripted_model([call("tell_time")])
    try:
        run_agent(Butler, "Time?", model=model)
    except AssertionError:
        pass
"""

GUARDED = """
from amoxi_py.models.openai import OpenAIModel
from amoxi_py.testing import StrictModelServer, run_agent
from watch.app import Butler


def test_a_real_provider_is_out_of_reach():
    result = run_agent(Butler, "Hi", model=OpenAIModel("gpt-5", "sk-secret-of-the-developer"))
    assert result.status == "failed"
    assert result.run.error.code == "model_out_of_reach"
    [told] = result.model_failures
    assert "https://api.openai.com/v1" in told
    assert "ScriptedModel" in told
    assert "sk-secret" not in told


def test_a_server_of_this_machine_is_in_reach(strict_model_server):
    server = strict_model_server(["Hello."])
    assert run_agent(Butler, "Hi", model=OpenAIModel("m", "k", server.url)).output == "Hello."
"""

STRANGER = """
import sys


def test_nothing_of_us_is_loaded():
    ours = {name for name in sys.modules if name.startswith("amoxi_py")}
    assert ours == {"amoxi_py", "amoxi_py.testing", "amoxi_py.testing.plugin"}
    assert "pydantic" not in sys.modules
    assert not {"fastapi", "uvicorn", "httpx2"} & set(sys.modules)
"""


ALONE = ("-p", "amoxi_py.testing.plugin")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "__init__.py").write_text("", "utf-8")
    (tmp_path / "watch" / "app.py").write_text(APP, "utf-8")
    (tmp_path / "application.json").write_text('{"app": {"package": "watch"}}', "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nfilterwarnings = error\n", "utf-8")
    (tmp_path / "tests").mkdir()
    return tmp_path


def run_tests(project: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    (project / "tests" / "test_it.py").write_text(source, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    env = {name: value for name, value in clean_environment().items() if name != "AMOXI_LOOPBACK_MODELS"}
    if "amoxi_py.testing.plugin" in options:  # spares the plugins of this machine, which take seconds to import
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(command, cwd=project, env=env, text=True, capture_output=True, timeout=100)


def test_an_apps_tests_talk_to_the_whole_app_over_http(project: Path) -> None:
    done = run_tests(project, FIXTURES, *ALONE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_a_model_that_had_to_refuse_fails_the_test(project: Path) -> None:
    done = run_tests(project, REFUSED, *ALONE)
    assert done.returncode == 1, done.stdout
    assert "a model of the test refused: the script has 1 replies" in done.stdout


def test_a_model_of_a_provider_is_out_of_reach_for_tests(project: Path) -> None:
    done = run_tests(project, GUARDED, *ALONE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_guard_is_off_when_the_project_says_so(project: Path) -> None:
    source = "import os\n\ndef test_off():\n    assert 'AMOXI_LOOPBACK_MODELS' not in os.environ\n"
    assert run_tests(project, source, *ALONE, "-o", "amoxi_real_models=true").returncode == 0
    assert run_tests(project, source, *ALONE).returncode == 1


def test_a_project_that_does_not_use_it_notices_nothing(project: Path) -> None:
    done = run_tests(project, STRANGER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
