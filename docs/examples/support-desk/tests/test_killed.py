"""What happens once though processes are killed: the refund, and the mail."""

import os
import subprocess
import sys
from pathlib import Path

from app.agents import SupportAgent
from app.refunds import LEDGER

from amoxi_py import Principal
from amoxi_py.testing import ScriptedModel, call, crash, run_agent

APP = Path(__file__).parents[1]
ANN = Principal(id="user:ann", name="Ann")
ASK = """
import asyncio
from amoxi_py import Principal, open_app


async def ask():
    async with open_app() as app:
        ann = Principal(id="user:ann", name="Ann")
        await app.runs.submit("support-agent", "Refund order A-1001", principal=ann)
        await asyncio.Event().wait()


asyncio.run(ask())
"""


def refund():
    model = ScriptedModel([call("refund_order", order_id="A-1001"), "It is on its way."])
    decide = {"refund_order": ("approve", "it came broken")}
    result = run_agent(SupportAgent, "Refund A-1001", model=model, principal=ANN, decide=decide)
    assert result.call("refund_order").result["cents"] == 8900


def test_a_refund_goes_out_once_wherever_the_process_is_killed():
    report = crash.at_every_step(refund, ledgers={str(LEDGER): crash.exactly(1)})
    assert report.kills > 10


def test_an_order_is_refunded_once_also_when_it_is_asked_for_twice():
    refund()
    model = ScriptedModel([call("refund_order", order_id="A-1001"), "It was refunded before."])
    again = run_agent(SupportAgent, "Refund A-1001", model=model, principal=ANN, decide={"refund_order": "approve"})
    assert "was refunded before" in again.call("refund_order").result
    assert len(LEDGER.read_text().splitlines()) == 1


def test_staff_see_one_mail_also_when_the_process_is_killed_after_sending_it(mailbox, until):
    env = {
        **os.environ,
        "PYTHONPATH": str(APP),
        "AI_MODEL": "offline",
        "DESK_SESSION_SECRET": "a-secret-of-the-tests-that-is-long-enough",
        "MAIL_HOST": "127.0.0.1",
        "MAIL_PORT": str(mailbox.port),
    }
    first = subprocess.Popen([sys.executable, "-c", ASK], env=env, stderr=subprocess.DEVNULL)
    try:
        until(lambda: mailbox.delivered)
    finally:
        first.kill()
        first.wait()
    mailbox.answers.set()
    second = subprocess.Popen([sys.executable, "-m", "amoxi_py", "worker"], env=env, stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(mailbox.delivered) == 2)
    finally:
        second.terminate()
        second.wait(20)
    [mail] = mailbox.seen
    assert mail["To"] == "desk@shop.example"
    assert "Ann asks for a refund of order A-1001." in mail.get_payload()
