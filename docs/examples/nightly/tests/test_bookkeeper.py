"""The agent: its rules, what it sees of the books, and a process that is killed at every step."""

import json
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from app.agents import Bookkeeper
from app.mail import LEDGER, Mail, locked_ledger
from app.rules import BookkeepingRules

from amoxi_py import Principal
from amoxi_py.testing import AgentRun, ScriptedModel, call, crash, run_agent

ACME = Principal(id="system:nightly", channel="code", tenant="Acme Ltd")
BIRCH = Principal(id="system:nightly", channel="code", tenant="birch")
INVOICES = """tenant,invoice,customer,amount,due
Acme Ltd,A-1,Ann,10.00,2026-02-01
birch,B-1,Bob,20.00,2026-02-01
Acme Ltd,A-2,Ann,30.00,2026-02-02
Acme Ltd,A-3,Ann,30.00,2026-04-01
"""


def remind(principal: Principal = ACME) -> AgentRun:
    Path("invoices.csv").write_text(INVOICES, "utf-8")
    message = "Remind of every invoice that was due before 2026-03-01."
    result = run_agent(Bookkeeper, message, principal=principal, model=BookkeepingRules())
    assert result.status == "completed"
    return result


def test_what_is_due_is_reminded_of_and_what_had_its_reminder_is_not():
    assert remind().output == "2 reminders sent."
    assert remind().output == "Nothing is due."
    assert len(LEDGER.read_text("utf-8").splitlines()) == 2


@pytest.mark.parametrize(("tenant", "own"), [(ACME, {"A-1", "A-2", "A-3"}), (BIRCH, {"B-1"})])
def test_a_tenant_is_shown_its_own_invoices_alone(tenant, own):
    assert {invoice["id"] for invoice in remind(tenant).call("list_open_invoices").result} == own


def test_a_model_that_names_another_tenants_invoice_is_told_that_there_is_none():
    remind()
    ledger = LEDGER.read_text("utf-8")
    model = ScriptedModel([call("send_reminder", invoice_id="B-1"), "I tried."])
    result = run_agent(Bookkeeper, "Remind of B-1.", model=model, principal=ACME)
    assert result.call("send_reminder").result == "There is no open invoice B-1."
    assert LEDGER.read_text("utf-8") == ledger


def send_slowly():
    with locked_ledger() as ledger:
        Path("begun").touch()
        time.sleep(0.3)
        ledger.write(json.dumps({"day": "2026-03-01", "tenant": "Acme Ltd", "invoice": "A-1", "key": "call-1"}) + "\n")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # the threads of earlier tests are idle
def test_a_reminder_goes_out_once_when_two_processes_send_it_at_the_same_time():
    with ProcessPoolExecutor(1) as other:
        writing = other.submit(send_slowly)
        while not Path("begun").exists() and not writing.done():
            time.sleep(0.001)
        Mail().send_reminder("Acme Ltd", "A-1", key="call-1")
        writing.result()
    assert len(LEDGER.read_text("utf-8").splitlines()) == len(Mail().last_reminders("Acme Ltd")) == 1


def night():
    remind()


def test_reminders_go_out_once_wherever_the_process_is_killed():
    report = crash.at_every_step(night, ledgers={str(LEDGER): crash.exactly(2)}, part=(1, 3))
    assert report.kills > 3
