"""Answers and signals over HTTP: what a waiting tool is told, by whom, and how often."""

from __future__ import annotations

from typing import Any

import pytest

ADDRESS = {"street": "Main St", "number": 12}


@pytest.fixture
def asked(staffed: Any) -> tuple[Any, dict[str, Any], str]:
    """Ann, her run that asks her for an address, and where it is answered."""
    ann = staffed.asks("ann")
    run = staffed.waiting(ann, "move", "the sofa")
    return ann, run, f"/agents/desk/runs/{run['id']}/answers/{run['waiting_for'][0]['call_id']}"


def wait_for(client: Any, run_id: str, kind: str) -> dict[str, Any]:
    """Return a run when it waits for something of this kind, by its stream."""
    from amoxi_py.testing.client import read_events

    with client.stream("GET", f"/runs/{run_id}/events") as stream:
        for event in read_events(stream):
            if event.type == "run.waiting":
                run: dict[str, Any] = client.get(f"/runs/{run_id}").json()
                if [each["kind"] for each in run["waiting_for"]] == [kind] and run["status"] == "waiting":
                    return run
    raise AssertionError("it ended")


def test_a_run_tells_its_question_with_the_schema_and_the_call_shows_that_it_waits(asked: Any) -> None:
    ann, run, path = asked
    (waiting,) = run["waiting_for"]
    assert waiting.pop("expires_at").endswith("Z")
    assert waiting.pop("schema")["required"] == ["street", "number"]
    assert waiting == {
        "kind": "question",
        "call_id": path.rpartition("/")[2],
        "tool": "move",
        "arguments": {"what": "the sofa"},
        "k": 1,
        "question": "Where to with the sofa?",
    }
    page = ann.get(f"/agents/desk/conversations/{run['conversation_id']}").json()
    (call,) = page["items"][-1]["calls"]
    assert call["status"] == "waiting"
    assert (call["question"]["k"], call["question"]["question"]) == (1, "Where to with the sofa?")
    assert call["question"]["by"] is None
    assert ann.get("/approvals").json()["items"] == []


def test_an_answer_that_does_not_fit_is_refused_field_by_field_and_the_question_stays_open(asked: Any) -> None:
    ann, run, path = asked
    for body, field in (
        ({"answer": "Main St 12"}, "answer"),
        ({"answer": {"street": "Main St", "number": 0}}, "answer.number"),
        ({"answer": {"street": "Main St"}}, "answer"),
        ({"answer": ADDRESS, "by": "me"}, "by"),
        ({}, "answer"),
    ):
        refused = ann.post(path, json=body)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
    refused = ann.post(path, json={"answer": {**ADDRESS, "street": "x" * 70_000}})
    assert (refused.status_code, refused.json()["code"]) == (422, "answer_too_long")
    assert ann.get(f"/runs/{run['id']}").json()["status"] == "waiting"


def test_the_first_answer_wins_and_the_same_again_answers_the_same(asked: Any) -> None:
    ann, run, path = asked
    first = ann.post(path, json={"answer": ADDRESS})
    assert first.status_code == 200
    told = first.json()
    assert (told["answer"], told["by"], told["run_id"], told["agent"]) == (ADDRESS, "user:42", run["id"], "desk")
    wait_for(ann, run["id"], "question")
    # the tool has asked on meanwhile: an answer that is sent twice is never taken for the next one
    for which in ({"question": "Where to with the sofa?"}, {"k": 1}):
        again = ann.post(path, json={"answer": dict(reversed(ADDRESS.items())), **which})
        assert (again.status_code, again.json()) == (200, told)
        late = ann.post(path, json={"answer": "sesame", **which})
        assert (late.status_code, late.json()["code"]) == (409, "already_answered")
    for which in ({"question": "Whither?"}, {"k": 7}, {"k": 2, "question": "Where to with the sofa?"}):
        none = ann.post(path, json={"answer": "sesame", **which})
        assert (none.status_code, none.json()["code"]) == (409, "question_changed")
    assert ann.post(path.replace("/agents/desk", ""), json={"answer": "sesame"}).status_code == 200
    waiting = wait_for(ann, run["id"], "signal")
    assert ann.post(path, json={"answer": ADDRESS, "k": 1}).json() == told
    assert ann.post(path, json={"answer": "sesame"}).json()["k"] == 2
    assert waiting["waiting_for"][0]["name"] == "paid"
    sent = ann.post(f"/agents/desk/runs/{run['id']}/signals/paid", json={"payload": {"sum": 3}})
    assert (sent.status_code, sent.json()["name"]) == (202, "paid")
    ended = ann.get(f"/runs/{run['id']}/events")
    assert ended.text.count("event: question.asked") == ended.text.count("event: question.answered") == 2
    assert 'event: signal.received\ndata: {"run_id":' in ended.text
    assert "event: run.completed" in ended.text
    page = ann.get(f"/agents/desk/conversations/{run['conversation_id']}").json()
    (call,) = page["items"][-2]["calls"]
    assert (call["status"], call["result"]) == ("done", ["Main St", "sesame", {"sum": 3}])
    assert ann.post(path, json={"answer": "sesame", "k": 2}).status_code == 200
    closed = ann.post(path, json={"answer": "another"})
    assert (closed.status_code, closed.json()["code"]) == (409, "already_answered")
    over = ann.post(f"/runs/{run['id']}/signals/paid", json={"payload": 1})
    assert (over.status_code, over.json()["code"]) == (409, "run_ended")


def test_the_question_of_a_run_that_was_cancelled_takes_no_answer(asked: Any) -> None:
    ann, run, path = asked
    assert ann.post(f"/runs/{run['id']}/cancel").status_code == 200
    closed = ann.post(path, json={"answer": ADDRESS})
    assert (closed.status_code, closed.json()["code"]) == (409, "question_closed")


def test_nobody_else_can_answer_or_send_signals(staffed: Any, asked: Any) -> None:
    ann, run, path = asked
    for client in (staffed.asks("fin"), staffed.asks("ann-elsewhere"), staffed.asks()):
        assert client.post(path, json={"answer": ADDRESS}).status_code == 404
        assert client.post(f"/runs/{run['id']}/signals/paid", json={}).status_code == 404
    other = staffed.waiting(ann, "own")
    call_id = path.rpartition("/")[2]
    assert ann.post(f"/runs/{other['id']}/answers/{call_id}", json={"answer": ADDRESS}).status_code == 404
    assert ann.post(path.replace("/desk/", "/open-desk/"), json={"answer": ADDRESS}).status_code == 404
    approval = other["waiting_for"][0]["call_id"]
    assert ann.post(f"/runs/{other['id']}/answers/{approval}", json={"answer": "yes"}).status_code == 404
    assert ann.post(f"/runs/{run['id']}/approvals/{call_id}", json={"decision": "approve"}).status_code == 404


def test_a_signal_with_an_idempotency_key_comes_once_and_a_bad_name_is_refused(staffed: Any, asked: Any) -> None:
    ann, run, _ = asked
    path = f"/runs/{run['id']}/signals/"
    first, again = (
        ann.post(path + "paid", json={"payload": 1}, headers={"idempotency-key": "k1"}).json() for _ in range(2)
    )
    assert first["id"] == again["id"]
    other = ann.post(path + "paid", json={"payload": 2}, headers={"idempotency-key": "k1"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    refused = ann.post(path + "no%20name", json={"payload": 1})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_signal_name")
    assert ann.get(f"/runs/{run['id']}").json()["status"] == "waiting"
