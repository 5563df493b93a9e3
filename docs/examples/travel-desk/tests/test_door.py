"""A booking behind the app's door: the question is answered over HTTP, and the payment provider calls."""

import json

import pytest
from app.payments import Payments
from app.signature import SIGNATURE, sign
from app.trains import RAILWAY

from amoxi_py.testing import call

SECRET = "the-secret-of-the-provider-in-the-tests"


@pytest.fixture
def amoxi_model(scripted_model):
    return scripted_model([call("book_trip", trip_id="T-101"), "You have a ticket."])


@pytest.fixture
def booked(amoxi_client):
    """A booking whose traveller is known, and whose invoice is open."""
    run = amoxi_client.submit("travel-desk", "Book T-101")
    [asked] = amoxi_client.until_status(run["id"], "waiting")["waiting_for"]
    assert asked["question"] == "Who travels from Berlin to Hamburg?"
    answer = amoxi_client.http.post(f"/runs/{run['id']}/answers/{asked['call_id']}", json={"answer": {"seat": "roof"}})
    assert answer.status_code == 422
    amoxi_client.answer(run["id"], asked["call_id"], {"name": "Ann Lee", "seat": "aisle"})
    with amoxi_client.follow(f"/runs/{run['id']}/events") as events:
        assert any("P-1" in event.data.get("text", "") for event in events)
    [waiting] = amoxi_client.until_status(run["id"], "waiting")["waiting_for"]
    assert (waiting["kind"], waiting["name"]) == ("signal", "paid.H-1")
    return amoxi_client, run


def tell(client, event, secret=SECRET):
    body = json.dumps(event).encode()
    headers = {SIGNATURE: sign(body, secret)}
    return client.http.post("/webhooks/payments", content=body, headers=headers)


def test_the_ticket_is_issued_when_the_provider_says_that_it_is_paid(booked):
    client, run = booked
    event = Payments().pay("P-1")
    for _ in range(2):  # providers send an event again when they have heard no answer
        assert tell(client, event).json() == {"taken": True}
    assert client.until_status(run["id"])["output"] == "You have a ticket."
    assert RAILWAY.read_text().splitlines()[1:] == ["ticket ticket-of-H-1 H-1"]


def test_who_has_not_the_providers_secret_cannot_pay(booked):
    client, run = booked
    event = {"id": "evt", "invoice": "P-1", "hold": "H-1", "run_id": run["id"], "cents": 1}
    for secret in ("another-secret-that-is-long-enough", ""):
        assert tell(client, event, secret).status_code == 401
    assert client.http.post("/webhooks/payments", json=event).status_code == 401
    assert client.run(run["id"])["status"] == "waiting"


def test_a_payment_for_a_run_that_was_cancelled_is_told_so(booked):
    client, run = booked
    client.cancel(run["id"])
    assert tell(client, Payments().pay("P-1")).json() == {"taken": False}


def test_the_fare_finder_is_asked_by_the_desk_only(amoxi_client):
    assert [one["name"] for one in amoxi_client.http.get("/agents").json()["items"]] == ["travel-desk"]
