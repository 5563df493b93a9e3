"""Documents in knowledge bases from Python: stopped anywhere, beside others, and cited by an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import open_app
from amoxi_py.app.ingesting import Ingested, ingest_folder
from amoxi_py.domain.memory import space_of_documents
from amoxi_py.errors import CommandRefused, InvalidRequest, StoreUnavailable
from amoxi_py.ports.passages import NewPassage
from amoxi_py.stores.sqlite.store import SqliteStore

DOCS = Path(__file__).parents[2] / "docs"
SPACE = space_of_documents("docs")
APP = '''
from amoxi_py import agent, search_docs


@agent(tools=[search_docs])
class Librarian:
    """You answer from the documents."""
'''


class StoppedStore:
    """A store whose `replace_source` stops at its n-th call: before it is done, or after."""

    def __init__(self, store: SqliteStore, n: int, *, done: bool) -> None:
        self._store = store
        self._left = n
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def replace_source(
        self, space: str, source: str, digest: str, passages: Sequence[NewPassage], embedder: str
    ) -> None:
        self._left -= 1
        if self._left or self._done:
            await self._store.replace_source(space, source, digest, passages, embedder)
        if not self._left:
            raise StoreUnavailable("stopped")


def with_store(folder: Path, case: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = SqliteStore(folder)
        await store.open(lambda events: None)
        try:
            await case(store)
        finally:
            await store.close()

    asyncio.run(run())


def passage(text: str) -> NewPassage:
    return NewPassage(id=f"doc_{text}", name=text, text=text)


async def texts(store: SqliteStore) -> list[tuple[str | None, str]]:
    page = await store.list_passages(SPACE, limit=200)
    return sorted((one.source, one.text) for one in page.items)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A folder with four documents."""
    folder = tmp_path / "book"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.md").write_text(f"# {name}\n\nFirst.\n\n## Below\n\nSecond.\n", "utf-8")
    return folder


def test_stopped_at_any_file_it_goes_on_there(book: Path, tmp_path: Path) -> None:
    whole = [(f"{name}.md", text) for name in "abcd" for text in (f"{name}\n\nFirst.", f"{name} > Below\n\nSecond.")]
    for n in range(1, 5):
        for done in (False, True):

            async def case(store: SqliteStore, n: int = n, done: bool = done) -> None:
                stopped: Any = StoppedStore(store, n, done=done)
                with pytest.raises(StoreUnavailable):
                    await ingest_folder(stopped, book, "docs", "offline")
                finished = n if done else n - 1
                assert await texts(store) == whole[: 2 * finished]
                told = await ingest_folder(store, book, "docs", "offline")
                assert (len(told.unchanged), len(told.new), told.changed, told.removed) == (
                    finished,
                    4 - finished,
                    (),
                    (),
                )
                assert await texts(store) == whole
                (book / "b.md").rename(book / "e.md")
                stopped = StoppedStore(store, 1, done=done)
                with pytest.raises(StoreUnavailable):
                    await ingest_folder(stopped, book, "docs", "offline")
                await ingest_folder(store, book, "docs", "offline")
                assert {source for source, _ in await texts(store)} == {"a.md", "c.md", "d.md", "e.md"}
                (book / "e.md").rename(book / "b.md")

            with_store(tmp_path / f"ai-{n}-{done}", case)


def test_what_another_one_adds_meanwhile_is_not_taken_for_gone(book: Path, tmp_path: Path) -> None:
    async def case(store: SqliteStore) -> None:
        class Late(StoppedStore):
            async def sources(self, space: str) -> dict[str, str]:
                known = await store.sources(space)
                await store.replace_source(space, "late.md", "1", (passage("Late."),), "offline")
                return known

        late: Any = Late(store, -1, done=True)
        for name in ("a", "gone"):
            await store.replace_source(SPACE, f"{name}.md", "1", (passage(name),), "offline")
        told = await ingest_folder(late, book, "docs", "offline")
        assert told.removed == ("gone.md",)
        assert ("late.md", "Late.") in await texts(store)

    with_store(tmp_path / "ai", case)


def test_the_same_text_in_a_file_twice_and_in_two_files_is_kept_as_often(book: Path, tmp_path: Path) -> None:
    async def case(store: SqliteStore) -> None:
        for name in "ab":
            (book / f"{name}.md").write_text("# A\n\nSame.\n\n# B\n\nOther.\n\n# A\n\nSame.\n", "utf-8")
        for _ in range(2):
            await ingest_folder(store, book, "docs", "offline")
            assert [source for source, text in await texts(store) if text == "A\n\nSame."] == ["a.md"] * 2 + [
                "b.md"
            ] * 2

    with_store(tmp_path / "ai", case)


def test_each_file_is_told_as_a_step(book: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []

    async def case(store: SqliteStore) -> None:
        await ingest_folder(store, book, "docs", "offline", on_step=lambda done, total: steps.append((done, total)))

    with_store(tmp_path / "ai", case)
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_answer_of_an_agent_cites_the_right_file_of_these_docs(make_app: Any) -> None:
    asked = {
        "How do I limit how many runs a visitor may start per day?": "guides/limits.md",
        "PgBouncer as a pooler in transaction mode": "guides/many-servers.md",
        "What happens to a tool call that was interrupted by a crash?": "guides/tools.md",
        "Why dishka for injection?": "decisions/0002-dishka.md",
        "resume an event stream after Last-Event-ID": "guides/streams.md",
    }

    async def ask() -> None:
        async with open_app(settings=make_app(APP, {"ai.model": "offline"})) as app:
            told = await app.ingest(DOCS)
            assert len(told.new) > 60
            for question, file in asked.items():
                assert (await app.runs.search_docs(question))[0].source == file
            run = await app.runs.submit("librarian", f"Search docs: {question}")
            answer = (await app.runs.wait(run.id, timeout=60)).output or ""
            assert answer.partition("Source: ")[2].startswith(file), answer[:300]

    asyncio.run(ask())


def test_an_app_fills_a_base_and_searches_what_it_has_by_its_name(make_app: Any, book: Path) -> None:
    async def fill() -> None:
        async with open_app(settings=make_app(APP), worker=False) as app:
            would = await app.ingest(book, base="book", dry_run=True)
            assert await app.runs.search_docs("First", base="book") == ()
            assert await app.ingest(str(book), base="book") == would
            assert (would.base, would.new, would.passages) == ("book", ("a.md", "b.md", "c.md", "d.md"), 8)
            assert await app.ingest(book, base="book") == Ingested(base="book", unchanged=would.new)
            (first, *_) = await app.runs.search_docs("c Below Second", base="book")
            assert (first.source, first.place, first.text) == ("c.md", "c > Below", "c > Below\n\nSecond.")
            assert await app.runs.search_docs("First") == (), "of another base nothing is found"
            with pytest.raises(InvalidRequest, match="the name of a knowledge base"):
                await app.ingest(book, base="")
            with pytest.raises(CommandRefused, match="No such file"):
                await app.ingest(book / "nowhere")

    asyncio.run(fill())
