"""What holds whatever a model says: nobody books above the limit, and no card number is stored."""

import re
from collections.abc import Mapping
from typing import Any

from amoxi_py import PlannedCall, Refuse, RunContext, before_tool, redact

from .bookings import BookingTools
from .settings import TravelSettings
from .trains import TIMETABLE

CARD = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")


@before_tool(tools=[BookingTools])
def keep_the_limit(ctx: RunContext, call: PlannedCall, settings: TravelSettings) -> Mapping[str, Any] | Refuse | None:
    """Refuse what costs more than the limit; the model is told why, and can look for another trip."""
    for trip in TIMETABLE:
        if trip.id == call.arguments["trip_id"] and trip.cents > settings.limit_cents:
            return Refuse(f"{trip.id} costs more than {settings.limit_cents} cents, which is the limit.")
    return None


@redact(longest=37)
def hide_cards(text: str) -> str:
    """Hide what looks like the number of a card: people pay their invoice elsewhere, and still tell it."""
    return CARD.sub("[card number]", text)
