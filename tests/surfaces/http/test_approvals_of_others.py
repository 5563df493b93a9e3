"""Approvals over all agents: who is shown one, who may decide, and what somebody else can find out."""

from __future__ import annotations

import logging
from typing import Any

import pytest


def listed(http: Any, **params: Any) -> list[str]:
    """The runs of all approvals that somebody may decide, page by page."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = http.get("/approvals", params={**params, **({"cursor": cursor} if cursor else {})}).json()
        found += [one["run_id"] for one in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            return found


def decide(http: Any, run: dict[str, Any], decision: str = "approve", **more: Any) -> Any:
    return http.post(f"/approvals/{run['waiting_for'][0]['call_id']}", json={"decision": decision, **more})


def ended(http: Any, run: dict[str, Any]) -> dict[str, Any]:
    with http.stream("GET", f"/runs/{run['id']}/events") as stream:
        for _ in stream.iter_lines():
            pass
    after: dict[str, Any] = http.get(f"/runs/{run['id']}").json()
    return after


def test_a_role_decides_over_agents_and_principals_of_its_tenant_and_is_named(staffed: Any) -> None:
    ann, fin, gus = (staffed.asks(who) for who in ("ann", "fin", "gus"))
    runs = [staffed.waiting(ann, "pay", f"p{n}", agent) for n, agent in enumerate(("desk", "open-desk", "desk"))]
    ids = [run["id"] for run in runs]
    assert [one for one in listed(fin, limit=1) if one in ids] == ids
    assert not set(ids) & set(listed(gus))
    assert not set(ids) & set(listed(ann))
    refused = decide(ann, runs[0])
    assert (refused.status_code, refused.json()["code"]) == (403, "not_approver")
    assert decide(ann, runs[0], arguments={"nonsense": 1}).status_code == 403
    assert decide(gus, runs[0]).status_code == 404
    assert fin.get(f"/runs/{runs[0]['id']}").status_code == 404, "an approver reads the approval, not the run"
    answer = decide(fin, runs[0], reason="it is due")
    assert answer.status_code == 200
    call_id = runs[0]["waiting_for"][0]["call_id"]
    told = answer.json()
    assert (told["call_id"], told["run_id"], told["agent"], told["tool"]) == (call_id, ids[0], "desk", "pay")
    assert (told["decision"], told["by"], told["reason"]) == ("approve", "user:7", "it is due")
    assert (told["requested_by"], told["arguments"]) == ({"id": "user:42", "name": "Ann"}, {"what": "p0"})
    assert decide(fin, runs[0]).json() == told
    assert decide(fin, runs[0], "decline").status_code == 409
    assert decide(fin, runs[1], "decline", reason="too much").status_code == 200
    assert ended(ann, runs[0])["status"] == "completed"
    (call,) = messages(ann, runs[0])[1]["calls"]
    assert call["approval"] == {"decision": "approve", "by": "user:7", "reason": "it is due"}
    assert call["status"] == "done"
    assert [one for one in listed(fin) if one in ids] == ids[2:]


def messages(http: Any, run: dict[str, Any]) -> list[dict[str, Any]]:
    path = f"/agents/{run['agent']}/conversations/{run['conversation_id']}"
    found: list[dict[str, Any]] = http.get(path).json()["items"]
    return found


def test_ones_own_are_listed_and_decided_without_the_run(staffed: Any) -> None:
    visitor = staffed.asks()
    visitor.get("/agents")
    run = staffed.waiting(visitor, "own")
    assert listed(visitor) == [run["id"]]
    assert decide(visitor, run, arguments={"what": "y"}).json()["arguments"] == {"what": "y"}
    assert ended(visitor, run)["status"] == "completed"
    assert listed(visitor) == []


def test_a_function_decides_who_may_and_only_within_the_tenant(staffed: Any) -> None:
    ann, fin, gus, visitor = (staffed.asks(who) for who in ("ann", "fin", "gus", None))
    run = staffed.waiting(ann, "delete")
    assert run["id"] in listed(fin)
    for other in (ann, gus, visitor):
        assert run["id"] not in listed(other)
    assert decide(ann, run).status_code == 403
    for other in (gus, visitor):
        assert decide(other, run).status_code == 404
        assert decide(other, run, arguments={"nonsense": 1}).status_code == 404
    assert decide(fin, run, arguments={"nonsense": 1}).status_code == 422
    assert decide(fin, run).json()["by"] == "user:7"
    assert ended(ann, run)["status"] == "completed"


@pytest.mark.parametrize(("what", "told"), [("raises", "`approver` failed"), ("no bool", "is no bool")])
def test_an_approver_that_fails_says_no_and_is_logged(
    staffed: Any, caplog: pytest.LogCaptureFixture, what: str, told: str
) -> None:
    ann, fin = staffed.asks("ann"), staffed.asks("fin")
    run = staffed.waiting(ann, "delete", what)
    with caplog.at_level(logging.ERROR):
        assert run["id"] not in listed(fin)
    assert told in caplog.text
    assert decide(fin, run).status_code == 404
    assert decide(ann, run).status_code == 403
    assert ann.post(f"/runs/{run['id']}/cancel").status_code == 200


def test_a_cursor_of_another_list_and_an_unknown_decision_are_refused(staffed: Any) -> None:
    ann = staffed.asks("ann")
    assert ann.get("/approvals?cursor=x").json()["code"] == "bad_cursor"
    assert ann.post("/approvals/call_1_0_0", json={"decision": "maybe"}).status_code == 422
    unknown = ann.post("/approvals/call_1_0_0", json={"decision": "approve"})
    assert (unknown.status_code, unknown.json()["detail"]) == (404, "no approval 'call_1_0_0'")


def test_readers_of_an_agent_read_the_files_of_its_conversations(staffed: Any) -> None:
    ann, fin, gus, bob = (staffed.asks(who) for who in ("ann", "fin", "gus", "bob"))
    ids = [ann.post("/files", files={"file": ("a.txt", f"text {n}".encode())}).json()["id"] for n in range(3)]
    for agent, file_id in zip(("open-desk", "desk"), ids, strict=False):
        body = {"message": "hello", "files": [file_id]}
        assert ann.post(f"/agents/{agent}/runs", json=body).status_code == 202
    assert [fin.get(f"/files/{file_id}").status_code for file_id in ids] == [200, 404, 404]
    assert fin.get(f"/files/{ids[0]}", headers={"range": "bytes=5-"}).text == "0"
    assert [other.get(f"/files/{ids[0]}").status_code for other in (gus, bob)] == [404, 404]
    assert fin.delete(f"/files/{ids[0]}").status_code == 404
    using = {"message": "hello", "files": [ids[0]]}
    assert fin.post("/agents/open-desk/runs", json=using).status_code == 404
    assert ann.get(f"/files/{ids[0]}").text == "text 0"


def test_readers_of_an_agent_read_and_change_nothing(staffed: Any) -> None:
    ann, fin, gus, bob = (staffed.asks(who) for who in ("ann", "fin", "gus", "bob"))
    run = staffed.waiting(ann, "own", agent="open-desk")
    other = staffed.waiting(ann, "own", agent="desk")
    call_id = run["waiting_for"][0]["call_id"]

    def paths(run: dict[str, Any]) -> list[str]:
        under = f"/agents/{run['agent']}"
        return [
            f"/runs/{run['id']}",
            f"{under}/runs/{run['id']}",
            f"{under}/conversations/{run['conversation_id']}",
        ]

    for path in paths(run):
        assert fin.get(path).json() == ann.get(path).json()
        assert (gus.get(path).status_code, bob.get(path).status_code) == (404, 404)
    for path in paths(other):
        assert fin.get(path).status_code == 404
    for send in (
        lambda: fin.post(f"/runs/{run['id']}/cancel"),
        lambda: fin.post(f"/runs/{run['id']}/approvals/{call_id}", json={"decision": "approve"}),
        lambda: fin.post(f"/approvals/{call_id}", json={"decision": "approve"}),
        lambda: fin.delete(paths(run)[2]),
        lambda: fin.post(
            "/agents/open-desk/runs", json={"message": "hello", "conversation_id": run["conversation_id"]}
        ),
    ):
        assert send().status_code == 404
    assert ann.get(paths(run)[0]).json() == run
    assert run["id"] not in [one["id"] for one in fin.get("/runs?limit=200").json()["items"]]
    assert ann.post(f"/runs/{run['id']}/cancel").status_code == 200
    events = ann.get(f"/runs/{run['id']}/events").text
    assert "run.cancelled" in events
    assert fin.get(f"/runs/{run['id']}/events").text == events
    assert gus.get(f"/runs/{run['id']}/events").status_code == 404
    assert ann.delete(paths(run)[2]).status_code == 204
    assert fin.get(paths(run)[0]).status_code == 404
