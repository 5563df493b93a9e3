"""What `amoxi token --kind a2a` gives to paste works as it is."""

from __future__ import annotations

import itertools
import json
import shlex
from typing import Any

import httpx
import pytest

from amoxi_py.cli.a2a_snippets import A2aPlace, a2a_snippets_for

pytestmark = pytest.mark.anyio

SOURCE = '''
from amoxi_py import agent

@agent
class Clerk:
    """You help."""

@agent
class Keeper:
    """You keep."""
'''


async def test_each_snippet_reaches_the_app_with_the_callers_token(a2a_app: Any, monkeypatch: Any, capsys: Any) -> None:
    place = A2aPlace(app="shop", url="http://127.0.0.1:8080/a2a", token="partner-token-0123456789", skill="keeper")
    texts = {snippet.client: snippet.text for snippet in a2a_snippets_for(place)}
    async with a2a_app(SOURCE) as app, app.http(None) as http:
        card = await http.get(shlex.split(texts["card"])[-1])
        assert [skill["id"] for skill in card.json()["skills"]] == ["clerk", "keeper"]

        words = shlex.split(texts["curl"])
        headers = dict(word.split(": ", 1) for before, word in itertools.pairwise(words) if before == "-H")
        sent = await http.post(words[2], headers=headers, content=words[words.index("-d") + 1])
        assert sent.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

        program, _, start = texts["a2a-sdk"].rpartition("\n\n\n")
        assert start == "asyncio.run(main())"
        wire = app.http(None)._transport
        own = httpx.AsyncClient
        monkeypatch.setattr(httpx, "AsyncClient", lambda **options: own(**{"transport": wire, **options}))
        monkeypatch.setenv(place.variable, place.token)
        names: dict[str, Any] = {"__name__": "pasted"}
        exec(compile(program, "pasted", "exec"), names)
        await names["main"]()
        assert "TASK_STATE_COMPLETED" in capsys.readouterr().out
        async with app.caller() as caller:
            listed = await caller.result("ListTasks")
            assert listed["totalSize"] == 2
    assert json.loads(words[-1])["params"]["metadata"] == {"skill": "keeper"}
