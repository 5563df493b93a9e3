"""The desk behind its door: the offline model reads "Refund order A-1001" as a call of `refund_order`."""

from pathlib import Path

import pytest
from app.refunds import LEDGER


@pytest.fixture
def asked(person):
    """A refund that Ann has asked for: her client, her run, and the call that waits."""
    ann = person("ann")
    run = ann.submit("support-agent", "Refund order A-1001")
    [waiting] = ann.until_status(run["id"], "waiting")["waiting_for"]
    return ann, run, waiting["call_id"]


def decide(client, call_id, decision="approve", **more):
    return client.http.post(f"/approvals/{call_id}", json={"decision": decision, **more})


def test_staff_approve_what_a_customer_asks_for_and_it_is_paid_once(asked, person):
    ann, run, call_id = asked
    sue = person("sue")
    [approval] = sue.http.get("/approvals").json()["items"]
    assert (approval["call_id"], approval["arguments"]) == (call_id, {"order_id": "A-1001"})
    assert approval["requested_by"] == {"id": "user:ann", "name": "Ann"}
    assert not LEDGER.exists()
    assert decide(sue, call_id, reason="it came broken").status_code == 200
    assert ann.until_status(run["id"])["status"] == "completed"
    assert decide(sue, call_id).status_code == 200
    assert [line.split(" ")[1:] for line in LEDGER.read_text().splitlines()] == [["A-1001", "8900", f"key={call_id}"]]
    assert sue.http.get("/approvals").json()["items"] == []


def test_the_customer_and_other_customers_cannot_decide(asked, person):
    ann, run, call_id = asked
    bob = person("bob")
    assert decide(ann, call_id).status_code == 403
    assert decide(bob, call_id).status_code == 404
    assert ann.http.get("/approvals").json()["items"] == bob.http.get("/approvals").json()["items"] == []
    assert ann.run(run["id"])["status"] == "waiting"


def test_the_customer_reads_who_decided_and_why(asked, person):
    ann, run, call_id = asked
    answer = decide(person("sue"), call_id, "decline", reason="it was used for a year")
    assert answer.status_code == 200
    [decided] = [event.data for event in ann.events(run["id"], timeout=20) if event.type == "approval.decided"]
    assert (decided["decision"], decided["by"], decided["reason"]) == ("decline", "user:sue", "it was used for a year")
    answer = ann.messages("support-agent", run["conversation_id"])[-1]
    assert "it was used for a year" in answer["text"]
    assert not LEDGER.exists()


def test_staff_see_the_approval_and_not_the_conversation(asked, person):
    _, run, _ = asked
    sue = person("sue")
    conversation = f"/agents/support-agent/conversations/{run['conversation_id']}"
    for path in (f"/runs/{run['id']}", f"/runs/{run['id']}/events", conversation):
        assert sue.http.get(path).status_code == 404


def test_the_next_message_of_the_customer_does_not_take_the_refund_back(asked, person):
    ann, run, call_id = asked
    later = ann.submit("support-agent", "Where is order A-1001?", conversation_id=run["conversation_id"])
    assert ann.run(run["id"])["status"] == "waiting"
    decide(person("sue"), call_id)
    assert ann.until_status(run["id"])["status"] == "completed"
    assert "Trail backpack" in ann.until_status(later["id"])["output"]


def test_staff_are_told_by_mail(asked, until):
    _, _, call_id = asked
    mail = until(lambda: list(Path("data/mail").glob("*.eml")))[0].read_text()
    assert f"Message-ID: <{call_id}@shop.example>" in mail
    assert "Ann asks for a refund of order A-1001." in mail


def test_nobody_gets_in_without_a_session(amoxi_client, person):
    http = amoxi_client.http
    assert http.get("/approvals").status_code == 401
    for login, password in (("ann", "sue-of-the-demo"), ("nobody", "nobody-of-the-demo")):
        refused = http.post("/login", json={"login": login, "password": password})
        assert (refused.status_code, refused.cookies) == (401, {})
    ann = person("ann").http
    assert ann.get("/approvals").status_code == 200
    ann.post("/logout")
    assert ann.get("/approvals").status_code == 401


def test_a_page_of_another_origin_does_nothing_in_somebodys_session(asked, person):
    _, _, call_id = asked
    headers = {"origin": "https://elsewhere.example"}
    answer = person("sue").http.post(f"/approvals/{call_id}", json={"decision": "approve"}, headers=headers)
    assert answer.status_code == 403


def test_the_pages_allow_nothing_inline(amoxi_client):
    for page in ("/", "/desk"):
        answer = amoxi_client.http.get(page)
        assert answer.status_code == 200
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "<script>" not in answer.text
        assert "style=" not in answer.text
