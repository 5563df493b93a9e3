"""How long a run goes on asking a model: minutes when it is away, a few tries when it answers and cannot be used."""

from __future__ import annotations

from amoxi_py.domain.retry import RetryPolicy
from amoxi_py.engine.model_tries import ModelTries, end_of_tries
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import ModelFailed

AWAY = ModelFailed("503", code="model_unavailable")
EMPTY = ModelFailed("nothing", code="model_empty_reply")


def test_an_outage_of_minutes_is_waited_out_and_all_but_the_first_seconds_of_it_are_stored() -> None:
    tries = ModelTries(0, EngineSettings())
    pauses = []
    while (pause := tries.failed(AWAY)) is not None:
        pauses.append(pause)
    assert sum(pause.seconds for pause in pauses) > 300
    assert sum(pause.seconds for pause in pauses if pause.in_place) < 5
    assert max(pause.seconds for pause in pauses) < 40
    assert tries.failures == len(pauses) + 1
    assert ModelTries(len(pauses), EngineSettings()).failed(AWAY) is None, "a crash gives no tries more"


def test_what_a_provider_answers_badly_is_asked_five_times_also_when_it_was_away_before() -> None:
    tries = ModelTries(0, EngineSettings())
    pauses = [tries.failed(EMPTY) for _ in range(5)]
    assert [pause.in_place for pause in pauses if pause is not None] == [True] * 4
    assert pauses[4] is None
    after_an_outage = ModelTries(9, EngineSettings())
    for _ in range(4):
        assert after_an_outage.failed(EMPTY) is not None
    assert after_an_outage.failed(EMPTY) is None
    assert after_an_outage.answered() == 0
    assert after_an_outage.answered() is None
    assert after_an_outage.failed(EMPTY) is not None


def test_what_cannot_get_better_ends_the_run_at_once_with_its_code() -> None:
    refused = ModelFailed("no", code="model_refused", retryable=False)
    assert ModelTries(0, EngineSettings()).failed(refused) is None
    assert end_of_tries(refused).code == "model_refused"
    assert ModelTries(0, EngineSettings(model_retry=RetryPolicy(tries=1))).failed(AWAY) is None
