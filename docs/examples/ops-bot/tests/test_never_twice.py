"""A deploy that is interrupted: killed at every step, and what `reconcile` says of each state that it can leave."""

from pathlib import Path

import pytest
from app.agents import OpsBot
from app.deploys import DeployTools
from app.releases import Releases
from app.sign_in import OpsSettings

from amoxi_py import Done, NotDone, Principal, ToolError, Unknown
from amoxi_py.testing import ScriptedModel, call, crash, run_agent, tool_context

HISTORY = "data/releases/history.log"
ANN = Principal(id="ann lee", name="Ann", roles=frozenset({"engineers", "on-call"}))
SETTINGS = {"ops.proxy-secret": "the-secret-of-the-proxy-in-the-tests", "ops.production": ["checkout"]}


def deploy():
    Path("data/releases/checkout/1.4.2").mkdir(parents=True, exist_ok=True)
    model = ScriptedModel([call("deploy", service="checkout", version="1.4.2"), "It is live."])
    decide = {"deploy": "approve"}
    result = run_agent(OpsBot, "Deploy checkout 1.4.2", model=model, principal=ANN, decide=decide, settings=SETTINGS)
    assert result.call("deploy").result == {"service": "checkout", "version": "1.4.2"}


def test_a_deploy_is_made_once_wherever_the_process_is_killed():
    report = crash.at_every_step(deploy, ledgers={HISTORY: crash.exactly(1)}, part=(1, 3))
    assert report.kills > 3


@pytest.fixture
def tools(releases: Releases) -> DeployTools:
    return DeployTools(releases, OpsSettings(proxy_secret=SETTINGS["ops.proxy-secret"], production=["checkout"]))


@pytest.fixture
def ctx():
    return tool_context(sync=True, principal=ANN)


def test_reconcile_says_done_when_the_history_has_it_and_it_is_live(tools, ctx):
    deployed = tools.deploy("checkout", "1.4.2", ctx)
    assert tools.what_happened("checkout", "1.4.2", ctx) == Done(deployed)


def test_reconcile_says_not_done_when_the_history_has_no_line_of_it(tools, ctx):
    tools.deploy("checkout", "1.4.2", tool_context(sync=True, principal=ANN))  # by another call, and it is live
    assert tools.what_happened("checkout", "1.4.2", ctx) == NotDone()


def test_reconcile_says_unknown_when_it_was_begun_and_is_not_live(tools, ctx, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    tools.deploy("checkout", "1.4.1", tool_context(sync=True, principal=ANN))
    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        tools.deploy("checkout", "1.4.2", ctx)
    answer = tools.what_happened("checkout", "1.4.2", ctx)
    assert isinstance(answer, Unknown)
    assert "1.4.1 is live" in answer.reason


def test_reconcile_says_unknown_when_another_deploy_came_after_it(tools, ctx):
    tools.deploy("checkout", "1.4.2", ctx)
    tools.deploy("checkout", "1.4.1", tool_context(sync=True, principal=ANN))
    assert isinstance(tools.what_happened("checkout", "1.4.2", ctx), Unknown)


def test_a_call_that_is_begun_twice_deploys_once(tools, ctx, releases):
    tools.deploy("checkout", "1.4.2", ctx)
    tools.deploy("checkout", "1.4.1", tool_context(sync=True, principal=ANN))
    with pytest.raises(RuntimeError, match="begun twice"):
        tools.deploy("checkout", "1.4.2", ctx)
    assert releases.current("checkout") == "1.4.1"


@pytest.mark.parametrize(("service", "version"), [("checkout", "9.9.9"), ("nothing", "1.4.2"), ("..", "1.4.2")])
def test_what_was_not_built_cannot_be_deployed(tools, ctx, releases, service, version):
    with pytest.raises(ToolError, match="There is no version"):
        tools.deploy(service, version, ctx)
    assert releases.history() == []
