"""The railway: its timetable, and seats that are held, ticketed or given back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from amoxi_py import ToolError, singleton, tool

from .ledger import open_ledger
from .settings import TravelSettings

RAILWAY = Path("data/railway.log")

City = Literal["Berlin", "Hamburg", "Paris"]
TripId = Annotated[str, Field(pattern=r"^T-\d{3}$", description="The trip's number, e.g. T-101")]


class Trip(BaseModel):
    """A train that can be taken."""

    id: str
    origin: City
    destination: City
    departs: str
    cents: int


TIMETABLE = (
    Trip(id="T-101", origin="Berlin", destination="Hamburg", departs="2027-01-11 08:06", cents=5990),
    Trip(id="T-102", origin="Berlin", destination="Hamburg", departs="2027-01-11 12:06", cents=3990),
    Trip(id="T-201", origin="Berlin", destination="Paris", departs="2027-01-11 13:34", cents=42_000),
)


@singleton
class Trains:
    """Stands for the railway's booking system; like a real one it does nothing twice for one key."""

    def __init__(self, settings: TravelSettings) -> None:
        self.closed_hours = settings.closed_hours

    def find(self, trip_id: str) -> Trip:
        """Return a trip; the model is told when there is none."""
        for trip in TIMETABLE:
            if trip.id == trip_id:
                return trip
        raise ToolError(f"There is no trip {trip_id}.")

    def opens_in(self) -> float:
        """Return for how many seconds the railway still takes no bookings; 0 when it does."""
        now = datetime.now(UTC)
        this_hour = now.replace(minute=0, second=0, microsecond=0)
        for hours in range(24):
            opening = this_hour + timedelta(hours=hours)
            if opening.hour not in self.closed_hours:
                return max(0.0, (opening - now).total_seconds())
        raise ToolError("The railway takes no bookings at all.")

    def hold(self, trip_id: str, seat: str, key: str) -> str:
        """Hold a seat and return the number of the hold; the same key again returns the same one."""
        with open_ledger(RAILWAY) as (lines, ledger):
            holds = [line for line in lines if line.startswith("hold ")]
            for line in holds:
                if line.endswith(f" key={key}"):
                    return line.split(" ")[1]
            hold = f"H-{len(holds) + 1}"
            ledger.write(f"hold {hold} {trip_id} {seat} key={key}\n")
            return hold

    def release(self, hold: str) -> None:
        """Give a seat back."""
        self._write_once(f"release {hold}")

    def issue(self, hold: str) -> str:
        """Issue the ticket of a hold and return its number."""
        ticket = f"ticket-of-{hold}"
        self._write_once(f"ticket {ticket} {hold}")
        return ticket

    def _write_once(self, line: str) -> None:
        with open_ledger(RAILWAY) as (lines, ledger):
            if line not in lines:
                ledger.write(f"{line}\n")


@singleton
class FareTools:
    """Tools about fares; they change nothing."""

    @tool(read_only=True)
    def search_trips(self, origin: City, destination: City) -> list[Trip]:
        """List the trips from one city to another, the cheapest first."""
        found = [trip for trip in TIMETABLE if (trip.origin, trip.destination) == (origin, destination)]
        return sorted(found, key=lambda trip: trip.cents)
