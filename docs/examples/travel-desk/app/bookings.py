"""The tool that books: it asks the traveller, holds a seat, waits for the money, and issues the ticket."""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, Field

from amoxi_py import ToolContext, ToolError, singleton, tool

from .payments import Payments
from .settings import TravelSettings
from .trains import Trains, TripId


class Traveller(BaseModel):
    """Who travels."""

    name: str = Field(min_length=1, max_length=80)
    seat: Literal["window", "aisle"]


class Booking(BaseModel):
    """What was booked."""

    ticket: str
    traveller: str
    cents: int


@singleton
class BookingTools:
    """Tools that book trips."""

    def __init__(self, trains: Trains, payments: Payments, settings: TravelSettings) -> None:
        self.trains = trains
        self.payments = payments
        self.hold_for = timedelta(minutes=settings.hold_minutes)

    # While it waits, none of this runs. It begins anew each time, and passes what is recorded: so all that differs from
    # one time to the next, such as the clock, is looked at in a step.
    @tool(idempotent=True)
    async def book_trip(self, trip_id: TripId, ctx: ToolContext) -> Booking:
        """Book a trip. The traveller is asked who travels, and is given an invoice to pay."""
        trip = self.trains.find(trip_id)
        traveller = await ctx.ask(f"Who travels from {trip.origin} to {trip.destination}?", Traveller)
        closed_for = await ctx.step("opening hours", self.trains.opens_in)
        if closed_for:
            ctx.progress("The railway takes no bookings at this hour; the trip is booked when it opens.")
            await ctx.sleep(closed_for)
        hold = await ctx.step("hold", self.trains.hold, trip.id, traveller.seat, ctx.call_id)
        invoice = await ctx.step("invoice", self.payments.open, hold, ctx.run_id, trip.cents)
        ctx.progress(f"A seat is held. Please pay the invoice {invoice}.")
        try:
            await ctx.wait_for(f"paid.{hold}", timeout=self.hold_for)
        except TimeoutError:
            if await ctx.step("close", self.payments.close, invoice):
                await ctx.step("release", self.trains.release, hold)
                raise ToolError("Nobody has paid in time, so the seat was given back.") from None
            await ctx.wait_for(f"paid.{hold}")  # paid in the last moment: the provider is about to tell
        ticket = await ctx.step("ticket", self.trains.issue, hold)
        return Booking(ticket=ticket, traveller=traveller.name, cents=trip.cents)
