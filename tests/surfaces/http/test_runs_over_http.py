"""`/agents`, `/agents/{agent}/runs` and `/runs`."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import httpx2
import pytest

RUN_FIELDS = {
    "id", "agent", "conversation_id", "status", "output", "result", "error", "waiting_for", "attempt", "usage",
    "created_at", "updated_at",
}  # fmt: skip


def test_the_list_of_agents_shows_what_the_caller_may_use(shared_house: Any) -> None:
    agents = shared_house.visitor().get("/agents").json()["items"]
    assert [agent["name"] for agent in agents] == ["strict-agent", "support-agent"]
    assert agents[1]["description"] == "The support-agent."
    assert agents[1]["tools"] == [
        {
            "name": "lookup_order",
            "description": "lookup_order of an order.",
            "read_only": True,
            "idempotent": False,
            "needs_approval": False,
        },
        {
            "name": "cancel_order",
            "description": "cancel_order of an order.",
            "read_only": False,
            "idempotent": False,
            "needs_approval": True,
        },
    ]
    acme = shared_house.api("acme").get("/agents").json()["items"]
    assert [agent["name"] for agent in acme] == ["acme-agent", "strict-agent", "support-agent"]
    assert "acme_order" in [tool["name"] for tool in acme[0]["tools"]]


def test_a_message_is_a_run_at_once_and_its_location_leads_to_it(house: Any) -> None:
    client = house.api()
    response = client.post("/agents/support-agent/runs", json={"message": "story"})
    run = response.json()
    assert response.status_code == 202
    assert set(run) == RUN_FIELDS
    assert run["status"] in ("queued", "running")
    assert response.headers["location"] == f"/agents/support-agent/runs/{run['id']}"
    assert house.events(client, response.headers["location"] + "/events")[-1].type == "run.completed"
    ended = client.get(response.headers["location"]).json()
    assert ended["status"] == "completed"
    assert ended["output"] == "It is shipped. \u00e4\u20ac\U0001f600"
    assert ended["attempt"] == 1
    assert ended["usage"] == {
        "requests": 2,
        "input_tokens": 20,
        "output_tokens": 10,
        "cached_tokens": 0,
        "cost_usd": 0.0,
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ended["created_at"])
    assert client.get(f"/runs/{run['id']}").json() == ended


def test_waiting_answers_200_with_the_ended_run(house: Any) -> None:
    response = house.api().post("/agents/support-agent/runs", params={"wait": "10"}, json={"message": "hello"})
    assert (response.status_code, response.json()["status"]) == (200, "completed")
    assert response.json()["output"] == "Hello."
    assert "location" in response.headers


def test_waiting_too_short_answers_202_with_the_run_as_it_is(house: Any) -> None:
    response = house.api().post("/agents/support-agent/runs", params={"wait": "0.2"}, json={"message": "wait"})
    assert (response.status_code, response.json()["status"]) == (202, "running")


@pytest.mark.parametrize("wait", ["-1", "301", "nan", "inf", "x", ""])
def test_a_wait_that_is_none_is_refused_and_nothing_runs(shared_house: Any, wait: str) -> None:
    client = shared_house.visitor()
    client.get("/agents")
    response = client.post("/agents/support-agent/runs", params={"wait": wait}, json={"message": "hello"})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "wait")
    assert client.get("/runs").json()["items"] == []


def test_a_waiting_client_that_leaves_stops_nothing(house: Any) -> None:
    client = house.api()
    with pytest.raises(httpx2.ReadTimeout):
        client.post("/agents/support-agent/runs?wait=60", json={"message": "wait"}, timeout=0.5)
    house.gate.open()
    run = house.api().get("/runs").json()["items"][0]
    assert house.events(house.api(), f"/runs/{run['id']}/events")[-1].type == "run.completed"


def test_lists_are_paged_newest_first(house: Any) -> None:
    client = house.api()
    ids = [house.submit(client, "hello", wait=10)["id"] for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get("/agents/support-agent/runs", params={"limit": "2", **cursor}).json()
        assert len(page["items"]) <= 2
        seen += [run["id"] for run in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ids[::-1]
    assert [run["id"] for run in client.get("/runs").json()["items"]] == seen
    assert client.get("/agents/strict-agent/runs").json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "limit=1.5", "cursor=%00", "cursor=nonsense"])
def test_a_page_that_cannot_be_is_refused(shared_house: Any, query: str) -> None:
    for path in ("/runs", "/agents/support-agent/runs", "/agents/support-agent/conversations"):
        assert shared_house.api().get(f"{path}?{query}").status_code == 422, path


def test_cancel_answers_with_the_ended_run_and_again_with_the_same(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "wait")
    assert house.gate.wait_reached()
    first = client.post(f"/agents/support-agent/runs/{run['id']}/cancel")
    assert (first.status_code, first.json()["status"]) == (200, "cancelled")
    again = client.post(f"/runs/{run['id']}/cancel")
    assert (again.status_code, again.json()) == (200, first.json())
    ended = house.submit(client, "hello", wait=10)
    assert client.post(f"/runs/{ended['id']}/cancel").json() == client.get(f"/runs/{ended['id']}").json()


def test_the_same_key_and_body_is_the_same_run(house: Any) -> None:
    client = house.api()
    key = {"Idempotency-Key": "order-7~!"}
    path = "/agents/support-agent/runs"
    first = client.post(path, json={"message": "hello"}, headers=key)
    other_form = b'{ "files": [], "conversation_id": null, "message": "h\\u0065llo" }'
    again = client.post(path, content=other_form, headers={**key, "content-type": "application/json"})
    assert again.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    assert client.post(path, json={"message": "hello"}, headers=key, params={"wait": "10"}).status_code == 200
    refused = client.post(path, json={"message": "other"}, headers=key)
    assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_key_reused")
    assert len(client.get("/runs").json()["items"]) == 1


def test_the_keys_of_two_callers_do_not_meet(house: Any) -> None:
    key = {"Idempotency-Key": "k"}
    clients = [house.api("acme"), house.api("globex"), house.visitor(), house.visitor()]
    runs = [each.post("/agents/support-agent/runs", json={"message": "hello"}, headers=key) for each in clients]
    assert len({run.json()["id"] for run in runs}) == 4


def test_twenty_posts_of_one_key_at_once_are_one_run(house: Any) -> None:
    client = house.api()
    ids: set[str] = set()

    def post() -> None:
        response = client.post(
            "/agents/support-agent/runs", json={"message": "hello"}, headers={"Idempotency-Key": "k"}
        )
        ids.add(response.json()["id"])

    threads = [threading.Thread(target=post) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == len(client.get("/runs").json()["items"]) == 1


@pytest.mark.parametrize("key", ["", "with space", "k" * 256, "\u00e4", "a\tb"])
def test_a_key_that_cannot_be_used_is_refused(shared_house: Any, key: str) -> None:
    headers = [("Idempotency-Key", key.encode())]
    response = shared_house.api().post("/agents/support-agent/runs", json={"message": "hello"}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_idempotency_key")


def test_a_doubled_key_is_refused(shared_house: Any) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    response = shared_house.api().post("/agents/support-agent/runs", json={"message": "hello"}, headers=headers)
    assert response.status_code == 422


def test_an_agent_that_does_not_exist_for_the_caller_is_unknown_everywhere(house: Any) -> None:
    client = house.visitor()
    run = house.submit(client, "hello", wait=10)
    for name in ("nobody", "inner-agent", "acme-agent", "Support-Agent", "%00"):
        base = f"/agents/{name}"
        answers = [
            client.post(f"{base}/runs", json={"message": "hello"}),
            client.get(f"{base}/runs"),
            client.get(f"{base}/runs/{run['id']}"),
            client.get(f"{base}/runs/{run['id']}/events"),
            client.post(f"{base}/runs/{run['id']}/cancel"),
            client.post(f"{base}/runs/{run['id']}/approvals/call_1", json={"decision": "approve"}),
            client.get(f"{base}/conversations"),
            client.get(f"{base}/conversations/{run['conversation_id']}"),
            client.get(f"{base}/conversations/{run['conversation_id']}/events"),
            client.delete(f"{base}/conversations/{run['conversation_id']}"),
        ]
        assert [answer.status_code for answer in answers] == [404] * len(answers), name


def test_a_run_is_not_found_under_another_agent(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "hello", wait=10)
    assert client.get(f"/agents/strict-agent/runs/{run['id']}").status_code == 404
    assert client.get(f"/agents/strict-agent/runs/{run['id']}/events").status_code == 404
    assert client.post(f"/agents/strict-agent/runs/{run['id']}/cancel").status_code == 404


def test_a_busy_conversation_of_a_strict_agent_refuses_and_is_not_disturbed(house: Any) -> None:
    client = house.api()
    path = "/agents/strict-agent/runs"
    run = client.post(path, json={"message": "wait"}).json()
    assert house.gate.wait_reached()
    refused = client.post(path, json={"message": "hello", "conversation_id": run["conversation_id"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "conversation_busy")
    house.gate.open()
    assert house.events(client, f"/runs/{run['id']}/events")[-1].type == "run.completed"


def test_a_second_message_goes_on_with_the_conversation(house: Any) -> None:
    client = house.api()
    first = house.submit(client, "hello", wait=10)
    second = house.submit(client, "hello", wait=10, conversation_id=first["conversation_id"])
    assert second["conversation_id"] == first["conversation_id"]
    other = client.post("/agents/strict-agent/runs", json={"message": "x", "conversation_id": first["conversation_id"]})
    assert other.status_code == 404


def test_a_wait_ends_when_the_server_stops(house: Any) -> None:
    client = house.api()
    answers: list[Any] = []

    def post() -> None:
        answers.append(client.post("/agents/support-agent/runs?wait=60", json={"message": "wait"}))

    waiting = threading.Thread(target=post)
    waiting.start()
    assert house.gate.wait_reached()
    before = time.monotonic()
    house.door.closing.set()
    waiting.join(60)
    assert time.monotonic() - before < 50
    assert (answers[0].status_code, answers[0].json()["status"]) in {(202, "queued"), (202, "running")}
