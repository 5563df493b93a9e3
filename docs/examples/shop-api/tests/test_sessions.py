"""A tool's session: committed with what it did, or rolled back; and closed, however the call ended."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from app.agents import ShopAssistant
from app.carrier import LEDGER, Carrier
from app.database import open_database

from amoxi_py import Principal
from amoxi_py.testing import ScriptedModel, arun_agent, call, crash

DATABASE = Path("data/shop.db")
MOVE = "Change the address of order A-1001 to: 7 Pine Street"
BEFORE, AFTER = ("1 Oak Road", 0), ("7 Pine Street", 1)


def kept(folder=Path()):
    """Return the order's address, and how many changes of addresses are known."""
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        (address,) = database.execute("SELECT address FROM orders WHERE id = 'A-1001'").fetchone()
        (changes,) = database.execute("SELECT count(*) FROM address_changes").fetchone()
    return address, changes


@pytest.fixture
def carrier_hangs(monkeypatch):
    """A carrier that does not answer; the event is set when it was asked, which is after the tool has written."""
    asked = threading.Event()

    async def hang(*request):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Carrier, "redirect", hang)
    return asked


def result_of(ann, run):
    (told,) = [event.data for event in ann.ai.events(run["id"], timeout=20) if event.type == "tool.completed"]
    return told["result"]


def test_what_a_tool_wrote_is_there_when_it_has_returned(shop, person):
    run = person("ann").ai.submit("shop-assistant", MOVE, wait=20)
    assert run["output"].startswith("Done:")
    assert (kept(), shop.open_sessions()) == (AFTER, 0)


def test_it_is_rolled_back_when_the_tool_fails(shop, person):
    run = person("ann").ai.submit("shop-assistant", MOVE.replace("A-1001", "A-1002"), wait=20)
    assert run["output"] == "That didn't work: The parcel of A-1002 is on the road, and its address is fixed."
    assert (kept(), shop.open_sessions()) == (BEFORE, 0)


def test_it_is_rolled_back_when_the_tool_takes_too_long(shop, person, carrier_hangs, until):
    ann = person("ann")
    run = ann.ai.submit("shop-assistant", MOVE, wait=20)
    assert carrier_hangs.is_set()
    assert result_of(ann, run).startswith("The tool took longer than 2 s and was stopped.")
    until(lambda: shop.open_sessions() == 0)
    assert kept() == BEFORE


def test_it_is_rolled_back_when_the_run_is_cancelled(shop, person, carrier_hangs, until):
    ann = person("ann")
    run = ann.ai.submit("shop-assistant", MOVE)
    assert carrier_hangs.wait(20)
    assert shop.open_sessions() == 1
    assert ann.ai.cancel(run["id"])["status"] == "cancelled"
    until(lambda: shop.open_sessions() == 0)
    assert kept() == BEFORE


async def move():
    """Move an order's parcel, in a process that may be killed at any moment."""
    model = ScriptedModel([call("change_address", order_id="A-1001", address="7 Pine Street"), "It is moved."])
    async with open_database(DATABASE):
        ann = Principal(id="ann", tenant="acme")
        result = await arun_agent(ShopAssistant, MOVE, model=model, principal=ann)
    assert result.output == "It is moved."
    assert result.call("change_address").result["address"] == "7 Pine Street"


def test_an_address_is_changed_once_wherever_the_process_is_killed():
    def look(kill):
        assert kept(kill.folder) == AFTER

    report = crash.at_every_step(move, ledgers={str(LEDGER): crash.exactly(1)}, check=look, part=(1, 3))
    assert report.kills > 2
