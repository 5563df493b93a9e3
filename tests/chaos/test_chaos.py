"""Runs on several servers survive everything that strikes these; the long form is `python tests/chaos/run.py`."""

from __future__ import annotations

import pytest
from run import run_chaos


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_whatever_strikes_servers_and_database_no_promise_is_broken() -> None:
    broken = run_chaos(runs=110, seconds=16.0, seed=5, store="postgres", every_s=0.5)
    assert broken == []
