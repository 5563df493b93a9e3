"""The shop's own rules, and its tools called like any other function."""

import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from app.files import add_line, alone_with
from app.orders import Orders
from app.refunds import LEDGER, Payments, RefundTools

from amoxi_py import ToolError
from amoxi_py.testing import tool_context


def test_the_same_key_pays_once():
    first = Payments().refund("A-1001", "call-1")
    assert Payments().refund("A-1001", "call-1") == first
    assert LEDGER.read_text("utf-8") == f"{first} A-1001 key=call-1\n"


def pay_slowly():
    with alone_with(LEDGER):
        Path("begun").touch()
        time.sleep(0.3)
        add_line(LEDGER, "R-1 A-1001 key=call-1")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # the threads of earlier tests are idle
def test_the_same_key_pays_once_when_two_processes_ask_at_the_same_time():
    with ProcessPoolExecutor(1) as other:
        writing = other.submit(pay_slowly)
        while not Path("begun").exists() and not writing.done():
            time.sleep(0.001)
        assert Payments().refund("A-1001", "call-1") == "R-1"
        writing.result()
    assert LEDGER.read_text("utf-8") == "R-1 A-1001 key=call-1\n"


def test_another_key_pays_again():
    payments = Payments()
    assert payments.refund("A-1001", "call-1") != payments.refund("A-1001", "call-2")


def test_a_refund_that_starts_again_pays_nothing_again():
    tools, first = RefundTools(Payments(), Orders()), tool_context()
    refund = asyncio.run(tools.refund_order("A-1001", first))
    assert first.progress_lines == ["Refund done, sending the receipt..."]
    LEDGER.unlink()
    assert asyncio.run(tools.refund_order("A-1001", first.again())) == refund
    assert not LEDGER.exists()


def test_a_shipped_order_cannot_be_cancelled():
    with pytest.raises(ToolError, match="shipped already"):
        Orders().cancel("A-1001", "call-1")


def test_a_cancelled_order_stays_cancelled_after_a_restart():
    Orders().cancel("A-1002", "call-1")
    assert Orders().find("A-1002").status == "cancelled"
