"""The agents: one talks to the traveller, and asks another one for trips."""

from pydantic import BaseModel

from amoxi_py import Budget, agent

from .bookings import BookingTools
from .trains import FareTools, TripId


class Offer(BaseModel):
    """The trip to propose."""

    id: TripId
    cents: int
    why: str


@agent(
    tools=[FareTools],
    result=Offer,
    budget=Budget(turns=6, tokens=60_000),
    expose=False,
    description="Finds the trip that fits best. Say from where to where, and what matters to the traveller.",
)
class FareFinder:
    """You look for trips, compare them by fare and time, and name the one that fits best."""


# Its tool waits for people: the next message is to wait behind it, and not to take its place.
@agent(tools=[BookingTools], agents=[FareFinder], budget=Budget(turns=20, tokens=200_000), on_busy="queue")
class TravelDesk:
    """You are the travel desk of a company.

    Ask the fare finder for a trip, and propose it. Book only what the traveller has agreed to.
    Never ask for the number of a card: an invoice comes with the booking.
    """
