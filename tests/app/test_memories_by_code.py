"""`Runs` keeps and finds what is remembered of a principal, for the app's own code; the settings count."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from amoxi_py import Memory, Principal, open_app
from amoxi_py.app.open_app import OpenApp
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.errors import ConfigError, Conflict, InvalidRequest

ANN = Principal(id="ann")
APP = '''
from amoxi_py import agent


@agent(memory=True)
class Friend:
    """You are a friend."""
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "friends_app.py").write_text(APP, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def settings(folder: Path, **given: object) -> Settings:
    told = {"app.package": "friends_app", "ai.model": "offline", **given}
    return load_settings(folder, profile="test", environ={}, given=told)


def test_code_remembers_recalls_lists_and_forgets_for_whom_it_names(folder: Path) -> None:
    async def story(app: OpenApp) -> None:
        runs = app.runs
        tea = await runs.remember("likes green tea", principal=ANN, key="drink", metadata={"from": "survey"})
        assert isinstance(tea, Memory)
        assert (tea.key, tea.metadata, tea.score) == ("drink", {"from": "survey"}, None)
        await runs.remember("plays chess", principal=ANN)
        await runs.remember("the app's own")
        with pytest.raises(Conflict, match="2 memories are kept already"):
            await runs.remember("one too many", principal=ANN)
        [best] = await runs.recall("What tea?", principal=Principal(id="user:ann", channel="code"), limit=1)
        assert (best.id, best.text) == (tea.id, "likes green tea")
        assert [one.text for one in await runs.recall("own")] == ["the app's own"]
        first = await runs.memories(principal=ANN, limit=1)
        rest = await runs.memories(principal=ANN, limit=1, cursor=first.next_cursor)
        assert [one.text for page in (first, rest) for one in page.items] == ["plays chess", "likes green tea"]
        assert rest.next_cursor is None
        with pytest.raises(InvalidRequest, match="the limit 0 must be from 1 to 1000"):
            await runs.memories(principal=ANN, limit=0)
        run = await runs.submit("friend", "What do you remember about tea?", principal=ANN)
        assert "likes green tea" in ((await runs.wait(run.id)).output or "")
        assert await runs.forget("drink", principal=ANN)
        assert not await runs.forget("drink", principal=ANN)
        assert await runs.search_docs("anything") == ()

    async def main() -> None:
        async with open_app(settings=settings(folder, **{"ai.memory.most": 2})) as app:
            await story(app)

    asyncio.run(main())


def test_an_embedder_that_cannot_be_stops_the_start_with_the_settings_source(folder: Path) -> None:
    async def main() -> None:
        async with open_app(settings=settings(folder, **{"ai.memory.embedder": "openai:x"})):
            raise AssertionError("it has started")

    with pytest.raises(ConfigError, match=r"'ai.memory.embedder' from .*'openai:x' needs OPENAI_API_KEY"):
        asyncio.run(main())
