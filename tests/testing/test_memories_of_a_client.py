"""The client of the kit and what is remembered of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from amoxi_py.models.script import call, reply
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.testing.servers import AppServer

SOURCE = '''
from amoxi_py import agent


@agent(memory=True)
class Friend:
    """You are a friend."""
'''


def test_a_client_reads_searches_and_forgets_what_is_remembered_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "friend_that_remembers"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(SOURCE, "utf-8")
    (tmp_path / "application.json").write_text("{}", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    facts = ("She has a dog.", "She lives in Lima.")
    script = {fact: [reply(call("remember", text=fact)), "Noted."] for fact in facts}
    with AppServer(tmp_path, tmp_path / "ai", model=ScriptedModel(script), package=package) as server:
        client, other = server.client(), server.client()
        for fact in facts:
            assert client.submit("friend", fact, wait=20)["status"] == "completed"
        assert [memory["text"] for memory in client.memories()] == [*reversed(facts)]
        assert [memory["text"] for memory in client.memories("a dog", limit=1)] == [facts[0]]
        assert other.memories() == []
        newest = client.memories()[0]["id"]
        with pytest.raises(AssertionError, match="404"):
            other.forget(newest)
        client.forget(newest)
        assert [memory["text"] for memory in client.memories()] == [facts[0]]
