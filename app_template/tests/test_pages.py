"""The whole app behind its HTTP door: `amoxi_client` talks to a real server on this machine."""

import pytest


def test_a_cancellation_waits_for_a_person(amoxi_client):
    started = amoxi_client.submit("support-agent", "Cancel order A-1002")
    [waiting] = amoxi_client.until_status(started["id"], "waiting")["waiting_for"]
    amoxi_client.decide(started["id"], waiting["call_id"], "decline")
    assert amoxi_client.events(started["id"])[-1].type == "run.completed"
    assert amoxi_client.run(started["id"])["output"] == "That didn't work: The person declined this action."


@pytest.mark.parametrize("page", ["/assistant", "/support-agent"])
def test_the_pages_are_there_and_allow_nothing_inline(amoxi_client, page):
    answer = amoxi_client.http.get(page)
    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "<script>" not in answer.text
