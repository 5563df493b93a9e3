"""X16: a provider that is asked too often is waited for, for minutes, and not for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amoxi_py import agent
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.models.script import fail
from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
QUICK = RetryPolicy(first=0.001, longest=0.001, longest_asked=0.001)


@agent
class Helper:
    """You help."""


def test_thirty_refusals_of_a_rate_limit_are_waited_out_and_forty_end_the_run(with_engine: Any, tmp_path: Path) -> None:
    asked = {"thirty": 0, "for ever": 0, "away": 0}

    def script(request: ModelRequest) -> Any:
        text = request.messages[0].text  # type: ignore[union-attr]
        asked[text] += 1
        if text == "away":
            return fail(529, retry_after=1)
        return fail(429, retry_after=1) if text == "for ever" or asked[text] <= 30 else "Done."

    ended: dict[str, Any] = {}

    async def story(engine: Any) -> None:
        for text in asked:
            run = (await engine.submit("helper", text, principal=ANN)).run
            found = await engine.wait(run.id, ANN, timeout=20)
            ended[text] = found.error.code if found.error else found.output

    own = EngineSettings().rate_limit_retry
    patient = RetryPolicy(tries=own.tries, first=QUICK.first, longest=QUICK.longest, longest_asked=QUICK.longest_asked)
    with_engine(SqliteStore(tmp_path), [Helper], script, story, model_retry=QUICK, rate_limit_retry=patient)
    assert asked == {"thirty": 31, "for ever": 40, "away": 5}
    assert ended == {"thirty": "Done.", "for ever": "model_rate_limited", "away": "model_unavailable"}


def test_without_a_word_how_long_it_takes_a_rate_limit_is_waited_out_for_a_quarter_of_an_hour() -> None:
    own = EngineSettings().rate_limit_retry
    pauses = [retry_delay(own, failures, chance=0.0) for failures in range(1, own.tries)]
    assert sum(pause or 0.0 for pause in pauses) > 15 * 60
    assert pauses[-1] == 30.0
