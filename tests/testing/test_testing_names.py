"""The names that an app's tests import: each is there, whatever was imported before it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from amoxi_py import testing


@pytest.mark.parametrize("name", testing.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(testing, name) is not None
    assert name in dir(testing)


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = testing.nonsense


def test_a_name_is_what_it_says_in_a_new_process_too() -> None:
    code = (
        "from amoxi_py.testing import ScriptedModel, StrictModelServer, run_agent, tool_context, crash\n"
        "print(run_agent.__name__, tool_context.__name__, crash.at_every_step.__name__, ScriptedModel.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["run_agent", "tool_context", "at_every_step", "ScriptedModel"]
