"""Runs that other runs ask for, over HTTP: they are parts of their root, and nothing by themselves."""

from __future__ import annotations

from typing import Any

from amoxi_py.domain.ids import child_run_id, parse_call_id
from amoxi_py.testing.client import read_events


def asked_below(client: Any, what: str, event: str) -> tuple[dict[str, Any], str, list[str]]:
    """Return a run, the id of the call two levels below it that a person is asked about, and the runs down to there."""
    run = client.post("/agents/reception/runs", json={"message": f"ask_middle ask_inner {what}"}).json()
    call_id = ""
    with client.stream("GET", f"/runs/{run['id']}/events") as stream:
        for told in read_events(stream):
            if told.type == event:
                call_id = told.data["call_id"]
                break
    inner = parse_call_id(call_id)
    assert inner is not None
    middle = child_run_id(f"call_{run['id'][4:]}_1_0")
    assert inner[0] == child_run_id(f"call_{middle[4:]}_1_0")
    return run, call_id, [middle, inner[0]]


def test_a_run_below_another_is_not_there_by_its_own_id_on_any_route(staffed: Any) -> None:
    ann, fin = staffed.asks("ann"), staffed.asks("fin")
    run, call_id, below = asked_below(ann, "own x", "approval.requested")
    assert fin.get(f"/runs/{run['id']}").status_code == 200, "fin may read the first agent's runs"
    seen = []
    for run_id in below:
        for path in (f"/runs/{run_id}", *(f"/agents/{one}/runs/{run_id}" for one in ("reception", "middle", "inner"))):
            seen += [who.get(path + end).status_code for who in (ann, fin) for end in ("", "/events")]
            posts = (
                ("cancel", None),
                (f"approvals/{call_id}", {"decision": "approve"}),
                (f"answers/{call_id}", {"answer": "x"}),
                ("signals/paid", {"payload": 1}),
            )
            seen += [ann.post(f"{path}/{end}", json=body).status_code for end, body in posts]
    assert set(seen) == {404}
    assert ann.get(f"/runs/{run['id']}").json()["status"] in ("waiting", "running", "queued")
    ann.post(f"/runs/{run['id']}/cancel")


def test_what_a_person_has_to_do_far_below_is_done_at_the_root(staffed: Any) -> None:
    ann = staffed.asks("ann")
    run, call_id, _ = asked_below(ann, "own x", "approval.requested")
    path = f"/agents/reception/runs/{run['id']}"
    assert ann.post(f"{path}/approvals/{call_id}", json={"decision": "approve"}).json()["run_id"] == run["id"]
    run, call_id, _ = asked_below(ann, "move x", "question.asked")
    path = f"/agents/reception/runs/{run['id']}"
    answer = {"answer": {"street": "Sea Road", "number": 1}}
    assert ann.post(f"/agents/desk/runs/{run['id']}/answers/{call_id}", json=answer).status_code == 404
    assert ann.post(f"{path}/answers/{call_id}", json=answer).json()["run_id"] == run["id"]
    ann.post(f"{path}/cancel")
