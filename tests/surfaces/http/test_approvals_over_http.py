"""A person's decision about one call."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def asked(house: Any) -> tuple[Any, dict[str, Any], str]:
    """A client, its run that waits for a decision, and the address of that decision."""
    client = house.api()
    run = house.submit(client, "cancel")
    with house.follow(client, f"/runs/{run['id']}/events") as events:
        for event in events:
            if event.type == "run.waiting":
                break
    run = client.get(f"/runs/{run['id']}").json()
    call_id = run["waiting_for"][0]["call_id"]
    return client, run, f"/agents/support-agent/runs/{run['id']}/approvals/{call_id}"


def test_a_run_tells_what_it_waits_for(asked: Any) -> None:
    _, run, path = asked
    assert run["status"] == "waiting"
    assert run["waiting_for"] == [
        {
            "kind": "approval",
            "call_id": path.rpartition("/")[2],
            "tool": "cancel_order",
            "arguments": {"order_id": "A-1002"},
            "expires_at": None,
        }
    ]


def test_an_approved_call_runs_and_the_decision_is_told(house: Any, asked: Any) -> None:
    client, run, path = asked
    response = client.post(path, json={"decision": "approve", "reason": "it is fine"})
    assert response.status_code == 200
    told = response.json()
    assert told.pop("created_at").endswith("Z")
    assert told == {
        "call_id": path.rpartition("/")[2],
        "run_id": run["id"],
        "agent": "support-agent",
        "tool": "cancel_order",
        "arguments": {"order_id": "A-1002"},
        "requested_by": {"id": "api:acme", "name": "acme"},
        "expires_at": None,
        "decision": "approve",
        "by": "api:acme",
        "reason": "it is fine",
    }
    assert house.events(client, f"/runs/{run['id']}/events")[-1].type == "run.completed"
    assert house.ledger == [(path.rpartition("/")[2], "A-1002")]


def test_a_declined_call_never_runs(house: Any, asked: Any) -> None:
    client, run, path = asked
    assert client.post(path, json={"decision": "decline"}).json()["decision"] == "decline"
    events = house.events(client, f"/runs/{run['id']}/events")
    assert [event.data["decision"] for event in events if event.type == "approval.decided"] == ["decline"]
    assert house.ledger == []


def test_the_first_decision_counts(house: Any, asked: Any) -> None:
    client, run, path = asked
    first = client.post(path, json={"decision": "approve"})
    house.events(client, f"/runs/{run['id']}/events")
    again = client.post(f"/runs/{run['id']}/approvals/{path.rpartition('/')[2]}", json={"decision": "approve"})
    assert (again.status_code, again.json()) == (200, first.json())
    other = client.post(path, json={"decision": "decline"})
    assert (other.status_code, other.json()["code"]) == (409, "already_decided")
    assert len(house.ledger) == 1


def test_edited_arguments_are_checked_and_are_the_ones_that_count(house: Any, asked: Any) -> None:
    client, run, path = asked
    bad = client.post(path, json={"decision": "approve", "arguments": {"order_id": "nonsense"}})
    assert (bad.status_code, bad.json()["code"]) == (422, "arguments_invalid")
    assert [error["field"] for error in bad.json()["errors"]] == ["arguments.order_id"]
    response = client.post(path, json={"decision": "approve", "arguments": {"order_id": "A-1003"}})
    assert response.json()["arguments"] == {"order_id": "A-1003"}
    house.events(client, f"/runs/{run['id']}/events")
    assert [order for _, order in house.ledger] == ["A-1003"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "maybe"},
        {"decision": "expire"},
        {"decision": True},
        {"decision": "approve", "by": "somebody"},
        {"decision": "approve", "arguments": []},
        {"decision": "approve", "reason": 1},
        {"decision": "approve", "reason": "a" * 2001},
        {"decision": "decline", "arguments": {"order_id": "A-1003"}},
    ],
)
def test_a_decision_that_is_none_is_refused(house: Any, asked: Any, body: Any) -> None:
    client, run, path = asked
    assert client.post(path, json=body).status_code == 422
    assert client.get(f"/runs/{run['id']}").json()["status"] == "waiting"


def test_a_call_is_not_found_under_another_run_or_agent(house: Any, asked: Any) -> None:
    client, run, path = asked
    call_id = path.rpartition("/")[2]
    other = house.submit(client, "hello", wait=10)
    approve = {"decision": "approve"}
    assert client.post(f"/runs/{other['id']}/approvals/{call_id}", json=approve).status_code == 404
    assert client.post(f"/agents/strict-agent/runs/{run['id']}/approvals/{call_id}", json=approve).status_code == 404
    assert client.post(f"/runs/{run['id']}/approvals/{call_id}9", json=approve).status_code == 404
    assert client.get(f"/runs/{run['id']}").json()["status"] == "waiting"


def test_a_decision_about_a_call_that_is_over_is_a_conflict(house: Any, asked: Any) -> None:
    client, run, path = asked
    client.post(f"/runs/{run['id']}/cancel")
    late = client.post(path, json={"decision": "approve"})
    assert (late.status_code, late.json()["code"]) == (409, "approval_closed")
    assert house.ledger == []
