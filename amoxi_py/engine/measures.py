"""What executing runs counts in this process: plain numbers, which whoever shows them reads."""

from __future__ import annotations

from collections.abc import Callable

from amoxi_py.domain.run import Run
from amoxi_py.domain.usage import Usage
from amoxi_py.ports.measures import OTHER, Histogram

_MOST_NAMES = 100
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
_FIRST_TOKEN_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)

Spread = dict[str, Histogram]
"""Histograms by the agent or the model that they are of."""


class EngineMeasures:
    """What is counted of runs, turns and models. A model is named as it is asked, such as `openai:gpt-5`.

    Attributes:
        run_seconds: By agent, from the submission to the end, of runs that ended here.
        turn_seconds: By agent, from asking the model to the end of the calls of its reply, where nothing waited.
        first_token_seconds: By model, from asking it to the first piece of text.
        requests: By model and `ok` or `failed`.
        tokens: By model and `input`, `output`, `cached` (of the input) or `written` (to the provider's cache).
        cost: By model, in billionths of a US dollar.
        resumed: Runs that went on here, by what was before: `crash` of another worker or an attempt, or `pause`.
        leases_lost: How often this process lost the lease that it executes under.
        steps: By `executed` or `replayed`, which is answered from the record.
    """

    def __init__(self) -> None:
        self.run_seconds: Spread = {}
        self.turn_seconds: Spread = {}
        self.first_token_seconds: Spread = {}
        self.requests: dict[tuple[str, str], int] = {}
        self.tokens: dict[tuple[str, str], int] = {}
        self.cost: dict[str, int] = {}
        self.resumed = {"crash": 0, "pause": 0}
        self.steps = {"executed": 0, "replayed": 0}
        self.leases_lost = 0
        self._models: set[str] = set()

    def run_ended(self, run: Run) -> None:
        """Count the end of a run that was executed here."""
        _of(self.run_seconds, run.agent, _SECONDS).observe(max(run.updated_at - run.created_at, 0.0))

    def turn(self, agent: str, seconds: float) -> None:
        """Count a turn that came to its end here."""
        _of(self.turn_seconds, agent, _SECONDS).observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        """Note when a model began to answer."""
        _of(self.first_token_seconds, self._named(model), _FIRST_TOKEN_S).observe(seconds)

    def request(self, model: str, outcome: str, usage: Usage | None) -> None:
        """Count a request to a model, and what it has used as far as that is known."""
        model = self._named(model)
        self.requests[model, outcome] = self.requests.get((model, outcome), 0) + 1
        if usage is None:
            return
        for kind, count in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached", usage.cached_tokens),
            ("written", usage.written_tokens),
        ):
            if count:
                self.tokens[model, kind] = self.tokens.get((model, kind), 0) + count
        if usage.cost:
            self.cost[model] = self.cost.get(model, 0) + usage.cost

    def _named(self, model: str) -> str:
        """Return the name to count under: an app that makes models by the dozen must not make a series of each."""
        if model not in self._models:
            if len(self._models) >= _MOST_NAMES:
                return OTHER
            self._models.add(model)
        return model


def _of(spread: Spread, name: str, bounds: tuple[float, ...]) -> Histogram:
    found = spread.get(name)
    if found is None:
        name = name if len(spread) < _MOST_NAMES else OTHER
        found = spread.setdefault(name, Histogram(bounds))
    return found


class TurnClock:
    """Times the turns of one run, one after the other."""

    __slots__ = ("_begun", "_clock", "_tell")

    def __init__(self, clock: Callable[[], float], tell: Callable[[float], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._begun: float | None = None

    def begin(self) -> None:
        """End the turn that went on, if any, and begin the next."""
        self.end()
        self._begun = self._clock()

    def drop(self) -> None:
        """Forget the turn that goes on: it is none."""
        self._begun = None

    def end(self) -> None:
        """Tell how long the turn took that goes on."""
        if self._begun is not None:
            self._tell(self._clock() - self._begun)
            self._begun = None
