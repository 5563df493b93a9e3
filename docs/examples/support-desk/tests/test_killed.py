"""What happens once though processes are killed: the refund, and the mail."""

import asyncio
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from app.agents import SupportAgent
from app.refunds import LEDGER, Payments, locked_ledger

from amoxi_py import Principal, ToolError, open_app
from amoxi_py.testing import ScriptedModel, call, crash, run_agent

ANN = Principal(id="ann", name="Ann")


def refund():
    model = ScriptedModel([call("refund_order", order_id="A-1001"), "It is on its way."])
    decide = {"refund_order": ("approve", "it came broken")}
    result = run_agent(SupportAgent, "Refund A-1001", model=model, principal=ANN, decide=decide)
    assert result.call("refund_order").result["cents"] == 8900


def test_a_refund_goes_out_once_wherever_the_process_is_killed():
    report = crash.at_every_step(refund, ledgers={str(LEDGER): crash.exactly(1)}, part=(1, 3))
    assert report.kills > 3


def test_an_order_is_refunded_once_also_when_it_is_asked_for_twice():
    refund()
    model = ScriptedModel([call("refund_order", order_id="A-1001"), "It was refunded before."])
    again = run_agent(SupportAgent, "Refund A-1001", model=model, principal=ANN, decide={"refund_order": "approve"})
    assert "was refunded before" in again.call("refund_order").result
    assert len(LEDGER.read_text().splitlines()) == 1


def pay_slowly():
    with locked_ledger() as ledger:
        Path("begun").touch()
        time.sleep(0.3)
        ledger.write("R-1 A-1001 8900 key=call-1\n")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # the threads of earlier tests are idle
def test_an_order_is_refunded_once_when_two_processes_are_asked_at_the_same_time():
    with ProcessPoolExecutor(1) as other:
        writing = other.submit(pay_slowly)
        while not Path("begun").exists() and not writing.done():
            time.sleep(0.001)
        with pytest.raises(ToolError, match="was refunded before"):
            Payments().refund("A-1001", 8900, key="call-2")
        writing.result()
    assert LEDGER.read_text() == "R-1 A-1001 8900 key=call-1\n"


def ask_and_work():
    """Ask for a refund and work until the process ends, in one of its own."""

    async def forever():
        async with open_app() as app:
            await app.runs.submit("support-agent", "Refund order A-1001", principal=ANN)
            await asyncio.Event().wait()

    asyncio.run(forever())


def test_staff_see_one_mail_also_when_the_process_is_killed_after_sending_it(mailbox, until, monkeypatch):
    monkeypatch.setenv("AI_MODEL", "offline")
    monkeypatch.setenv("DESK_SESSION_SECRET", "a-secret-of-the-tests-that-is-long-enough")
    monkeypatch.setenv("MAIL_HOST", "127.0.0.1")
    monkeypatch.setenv("MAIL_PORT", str(mailbox.port))
    first = multiprocessing.get_context("spawn").Process(target=ask_and_work)
    first.start()
    try:
        until(lambda: mailbox.delivered)
    finally:
        first.kill()
        first.join()
    mailbox.answers.set()

    async def second():
        async with open_app():
            await asyncio.to_thread(until, lambda: len(mailbox.delivered) == 2)

    asyncio.run(second())
    [mail] = mailbox.seen
    assert mail["To"] == "desk@shop.example"
    assert "Ann asks for a refund of order A-1001." in mail.get_payload()
