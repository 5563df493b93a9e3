"""What an operator sets in the section `travel`."""

from pydantic import BaseModel, Field, SecretStr

from amoxi_py import settings


@settings("travel")
class TravelSettings(BaseModel):
    """TRAVEL_WEBHOOK_SECRET, or the file that TRAVEL_WEBHOOK_SECRET_FILE names, is shared with the payment provider."""

    webhook_secret: SecretStr = Field(min_length=32)
    hold_minutes: float = Field(default=15, gt=0)
    limit_cents: int = Field(default=30_000, gt=0)
    closed_hours: frozenset[int] = frozenset()
    """Hours of the day, UTC, in which the railway takes no bookings, such as [2, 3]."""
