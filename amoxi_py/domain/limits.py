"""How much is admitted: at once of all, and of each principal at once, in a minute and in a day."""

from __future__ import annotations

from msgspec import Struct

BUSY = "busy"
TOO_MANY_RUNS = "too_many_runs"
TOO_MANY_REQUESTS = "too_many_requests"
DAILY_BUDGET_USED = "daily_budget_used"
REFUSALS = (BUSY, TOO_MANY_RUNS, TOO_MANY_REQUESTS, DAILY_BUDGET_USED)
"""The codes of all refusals; each passes by itself."""


class Limits(Struct, frozen=True, kw_only=True):
    """What is admitted over all processes of a store; 0 is no limit. Minutes and days are those of UTC.

    Attributes:
        in_flight: Runs of all principals that are queued or running, when one more is asked for.
        runs_at_once: The same of one principal.
        requests_per_minute: What one principal asks for: runs, and calls of tools without a run.
        runs_per_day: Runs of one principal.
        tokens_per_day: Tokens in and out of one principal's runs, counted when each run ends.
        cost_per_day: What these have cost, in billionths of a US dollar.
    """

    in_flight: int = 0
    runs_at_once: int = 0
    requests_per_minute: int = 0
    runs_per_day: int = 0
    tokens_per_day: int = 0
    cost_per_day: int = 0

    @property
    def of_principals(self) -> bool:
        """Whether anything of one principal is limited."""
        return bool(self.runs_at_once or self.count_requests or self.count_usage)

    @property
    def count_requests(self) -> bool:
        """Whether it must be counted what a principal asks for."""
        return bool(self.requests_per_minute or self.runs_per_day)

    @property
    def count_usage(self) -> bool:
        """Whether it must be counted what a principal's runs have used."""
        return bool(self.tokens_per_day or self.cost_per_day)


NO_LIMITS = Limits()
