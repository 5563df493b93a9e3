"""Runs and calls without a server: what the agents say to each other, what is held and paid, and what is not."""

import asyncio
from pathlib import Path

import pytest
from app.agents import TravelDesk
from app.bookings import BookingTools
from app.payments import INVOICES, Payments
from app.settings import TravelSettings
from app.trains import RAILWAY, Trains

from amoxi_py import ToolError
from amoxi_py.testing import ScriptedModel, call, crash, run_agent, tool_context

SECRET = "the-secret-of-the-provider-in-the-tests"
SETTINGS = {"travel.webhook-secret": SECRET}
ANN = {"name": "Ann Lee", "seat": "window"}
FINDER = ScriptedModel(
    [
        call("search_trips", origin="Berlin", destination="Hamburg"),
        call("final_result", id="T-102", cents=3990, why="It is the cheaper one."),
    ]
)


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


def test_the_desk_asks_the_fare_finder_and_gets_an_offer():
    desk = ScriptedModel([call("ask_fare_finder", message="Berlin to Hamburg, cheap"), "T-102 for 39.90 euros?"])
    found = run_agent(TravelDesk, "To Hamburg!", model={"travel-desk": desk, "fare-finder": FINDER}, settings=SETTINGS)
    assert found.output == "T-102 for 39.90 euros?"
    finder = found.child("fare-finder")
    assert [trip["id"] for trip in finder.call("search_trips").result] == ["T-102", "T-101"]
    assert finder.result == {"id": "T-102", "cents": 3990, "why": "It is the cheaper one."}


def book():
    """Book a trip whose invoice is paid; the railway's ledger tells of all that it did."""
    desk = ScriptedModel([call("book_trip", trip_id="T-102"), "You have a ticket."])
    found = run_agent(
        TravelDesk,
        "Book it",
        model={"travel-desk": desk, "fare-finder": FINDER},
        answers={"book_trip": [ANN]},
        signals={"paid.H-1": [{"invoice": "P-1", "cents": 3990}]},
        settings=SETTINGS,
    )
    booking = {"ticket": "ticket-of-H-1", "traveller": "Ann Lee", "cents": 3990}
    assert found.call("book_trip").result == booking


def test_a_trip_is_booked_once_wherever_the_process_is_killed():
    ledgers = {str(RAILWAY): crash.exactly(2), str(INVOICES): crash.exactly(1)}
    assert crash.at_every_step(book, ledgers=ledgers, part=(1, 6)).kills > 3


@pytest.fixture
def tools():
    settings = TravelSettings(webhook_secret=SECRET)
    return BookingTools(Trains(settings), Payments(), settings)


def test_a_seat_that_nobody_pays_for_is_given_back(tools):
    with pytest.raises(ToolError, match="given back"):
        asyncio.run(tools.book_trip("T-101", tool_context(answers=[ANN])))
    assert lines(RAILWAY)[1:] == ["release H-1"]
    assert lines(INVOICES)[-1] == "closed P-1"


def test_who_pays_in_the_last_moment_gets_the_ticket(tools):
    class LateNews(Payments):
        def close(self, invoice: str) -> bool:
            self.pay(invoice)
            return super().close(invoice)

    tools.payments = LateNews()
    ctx = tool_context(answers=[ANN], signals={"paid.H-1": [TimeoutError, {"invoice": "P-1", "cents": 5990}]})
    assert asyncio.run(tools.book_trip("T-101", ctx)).ticket == "ticket-of-H-1"
    assert lines(RAILWAY)[1:] == ["ticket ticket-of-H-1 H-1"]


def test_at_night_the_call_sleeps_and_does_not_look_at_the_clock_again(tools):
    class AtNight(Trains):
        hours = iter([3600.0])

        def opens_in(self) -> float:
            return next(self.hours)

    tools.trains = AtNight(TravelSettings(webhook_secret=SECRET))
    ctx = tool_context(answers=[ANN], signals={"paid.H-1": [{}]})
    asyncio.run(tools.book_trip("T-101", ctx))
    assert ctx.slept == [3600.0]
    assert asyncio.run(tools.book_trip("T-101", ctx.again())).ticket == "ticket-of-H-1"


def test_the_railway_opens_at_the_end_of_its_closed_hours():
    def opens_in(hours) -> float:
        return Trains(TravelSettings(webhook_secret=SECRET, closed_hours=frozenset(hours))).opens_in()

    assert opens_in([]) == 0
    for open_at in (0, 12):
        assert 0 <= opens_in({*range(24)} - {open_at}) < 24 * 3600
    with pytest.raises(ToolError, match="at all"):
        opens_in(range(24))


def test_the_limit_holds_whatever_the_model_says():
    desk = ScriptedModel([call("book_trip", trip_id="T-201"), "That is too dear."])
    found = run_agent(
        TravelDesk, "Paris!", model={"travel-desk": desk, "fare-finder": FINDER}, package="app", settings=SETTINGS
    )
    assert found.call("book_trip").result == "T-201 costs more than 30000 cents, which is the limit."
    assert lines(RAILWAY) == []


def test_no_card_number_is_stored_or_told_to_a_model():
    desk = ScriptedModel(["Please pay the invoice."])
    models = {"travel-desk": desk, "fare-finder": FINDER}
    message = "My card is 4111 1111 1111 1111."
    found = run_agent(TravelDesk, message, model=models, package="app", settings=SETTINGS)
    assert found.messages[0].text == "My card is [card number]."
    assert found.requests[0].messages[0].text == "My card is [card number]."
