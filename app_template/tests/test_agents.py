"""What the agents do: each test is a real run, with a script in the place of the model."""

from pathlib import Path

import pytest
from app.agents import Assistant, SupportAgent
from app.refunds import LEDGER

from amoxi_py.testing import ScriptedModel, call, crash, run_agent


def test_an_order_is_looked_up():
    model = ScriptedModel([call("lookup_order", order_id="A-1001"), "It is shipped."])
    result = run_agent(SupportAgent, "Where is order A-1001?", model=model)
    assert result.output == "It is shipped."
    assert result.call("lookup_order").result["status"] == "shipped"


def test_an_unknown_order_is_told_to_the_model():
    model = ScriptedModel([call("lookup_order", order_id="A-9999"), "I cannot find it."])
    result = run_agent(SupportAgent, "Where is order A-9999?", model=model)
    assert result.call("lookup_order").is_error
    assert result.call("lookup_order").result == "There is no order A-9999."


@pytest.mark.parametrize(("decision", "status"), [("approve", "done"), ("decline", "declined")])
def test_a_cancellation_is_done_when_a_person_approves(decision, status):
    model = ScriptedModel([call("cancel_order", order_id="A-1002"), "Settled."])
    result = run_agent(SupportAgent, "Cancel order A-1002", model=model, decide={"cancel_order": decision})
    assert result.call("cancel_order").status == status
    assert Path("data/cancelled.log").exists() is (decision == "approve")


def test_a_note_is_kept():
    run_agent(Assistant, "Add a note: buy tent pegs")  # without a model it is the offline one that answers
    assert "buy tent pegs" in run_agent(Assistant, "List my notes").output


def refund():
    model = ScriptedModel([call("refund_order", order_id="A-1001"), "The money is on its way."])
    result = run_agent(SupportAgent, "Refund order A-1001", model=model)
    assert result.status == "completed"
    assert result.call("refund_order").result["emailed"]


def test_a_refund_goes_out_once_wherever_the_process_is_killed():
    report = crash.at_every_step(refund, ledgers={str(LEDGER): crash.exactly(1)})
    assert report.kills > 10
