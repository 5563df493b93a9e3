"""The shop's own rules: money goes out once per key, and what is shipped cannot be cancelled."""

from pathlib import Path

import pytest

from amoxi_py import ToolError
from app.orders import Orders
from app.refunds import LEDGER, Payments


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_same_key_pays_once() -> None:
    first = Payments().refund("A-1001", "call-1")
    assert Payments().refund("A-1001", "call-1") == first
    assert LEDGER.read_text("utf-8") == f"{first} A-1001 key=call-1\n"


def test_another_key_pays_again() -> None:
    payments = Payments()
    assert payments.refund("A-1001", "call-1") != payments.refund("A-1001", "call-2")
    assert len(LEDGER.read_text("utf-8").splitlines()) == 2


def test_a_shipped_order_cannot_be_cancelled() -> None:
    with pytest.raises(ToolError, match="shipped already"):
        Orders().cancel("A-1001", "call-1")


def test_a_cancelled_order_stays_cancelled_after_a_restart() -> None:
    Orders().cancel("A-1002", "call-1")
    assert Orders().find("A-1002").status == "cancelled"


def test_an_unknown_order_is_told_to_the_model() -> None:
    with pytest.raises(ToolError, match="no order A-9999"):
        Orders().find("A-9999")
