"""Who may deploy what, behind the app's door."""

import pytest
from app.releases import Releases

from amoxi_py.testing import call


@pytest.fixture
def amoxi_model(scripted_model):
    production = [call("deploy", service="checkout", version="1.4.2"), "It is settled."]
    staging = [call("deploy", service="staging", version="2.0.0"), "It is live."]
    return scripted_model({"Deploy checkout 1.4.2": production, "Deploy staging 2.0.0": staging})


@pytest.fixture
def asked(person):
    """A deploy to production that Ann, who is on call, has asked for."""
    ann = person("ann")
    run = ann.submit("ops-bot", "Deploy checkout 1.4.2")
    [waiting] = ann.until_status(run["id"], "waiting")["waiting_for"]
    return ann, run, waiting["call_id"]


def decide(client, call_id, **more):
    return client.http.post(f"/approvals/{call_id}", json={"decision": "approve", **more})


def test_another_engineer_on_call_approves_and_is_named(asked, person, releases: Releases):
    ann, run, call_id = asked
    bob = person("bob")
    assert [one["call_id"] for one in bob.http.get("/approvals").json()["items"]] == [call_id]
    approval = decide(bob, call_id, reason="tests are green").json()
    assert (approval["by"], approval["reason"]) == ("user:bob", "tests are green")
    assert ann.until_status(run["id"])["status"] == "completed"
    assert releases.current("checkout") == "1.4.2"
    [entry] = releases.history()
    assert (entry.service, entry.version, entry.by, entry.key) == ("checkout", "1.4.2", "user:ann", call_id)


def test_who_asked_cannot_approve_it_though_on_call(asked, releases: Releases):
    ann, run, call_id = asked
    assert decide(ann, call_id).status_code == 403
    assert ann.http.get("/approvals").json()["items"] == []
    assert ann.run(run["id"])["status"] == "waiting"
    assert releases.history() == []


def test_for_who_is_not_on_call_there_is_no_such_approval(asked, person):
    _, run, call_id = asked
    for other in (person("eve"), person("zoe")):
        assert decide(other, call_id).status_code == 404
        assert other.http.get(f"/runs/{run['id']}").status_code == 404
        assert other.http.get("/approvals").json()["items"] == []


def test_for_who_is_no_engineer_there_is_no_bot(person):
    assert person("zoe").http.post("/agents/ops-bot/runs", json={"message": "Hello"}).status_code == 404
    assert person("zoe").http.get("/agents").json()["items"] == []


def test_staging_needs_no_approval(person, releases: Releases):
    eve = person("eve")
    run = eve.submit("ops-bot", "Deploy staging 2.0.0", wait=20)
    assert (run["status"], run["output"]) == ("completed", "It is live.")
    assert releases.current("staging") == "2.0.0"


def test_headers_are_believed_from_the_proxy_only(amoxi_client):
    secret = "the-secret-of-the-proxy-in-the-tests"
    for headers in (
        {"x-auth-user": "ann"},
        {"x-auth-user": "ann", "x-proxy-secret": secret.upper()},
        {"x-auth-user": "ann", "x-proxy-secret": b"\xff\xfe"},
        {"x-proxy-secret": secret},
        [("x-auth-user", "ann"), ("x-auth-user", "eve"), ("x-proxy-secret", secret)],  # one is the client's own
    ):
        answer = amoxi_client.http.get("/agents", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated"), headers
