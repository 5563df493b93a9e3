"""What a long conversation stores grows by the same amount with each turn."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from amoxi_py import agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.models.script import call
from amoxi_py.ports.chat_model import ModelRequest, ToolResult
from amoxi_py.stores.postgres.store import PostgresStore
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
TURNS = 400
HALF_OF_A_PEER = 1651 * 1024 // 2
"""Half of what a peer (AAA 0.6.0) stores for the same conversation."""


@tool(read_only=True)
async def look(number: int) -> str:
    """Look a number up.

    Args:
        number: Which
    """
    return "x" * 400


@agent(tools=[look], max_turns=TURNS + 1, compaction=False)
class Clerk:
    """You look numbers up."""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Callable[[], int]]:
    """A store, and what tells the bytes of all values in it."""
    if request.param == "sqlite":

        def used() -> int:
            (file,) = tmp_path.glob("*.db")
            with sqlite3.connect(file) as connection:
                pages, free = (
                    connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count")
                )
                size = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.close()
            return int((pages - free) * size)

        return SqliteStore(tmp_path), used
    url: str = request.getfixturevalue("postgres_url")

    def weight() -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            tables = connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'amoxi'::regnamespace AND relkind = 'r'"
            ).fetchall()
            return sum(
                connection.execute(f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM amoxi.{name} AS t").fetchall()[
                    0
                ][0]
                for (name,) in tables
            )

    return PostgresStore(url), weight


def test_the_last_turns_of_a_long_run_store_no_more_than_the_first(
    place: tuple[Any, Callable[[], int]], with_engine: Any
) -> None:
    store, used = place
    sizes: list[int] = []

    def script(request: ModelRequest) -> Any:
        done = sum(isinstance(message, ToolResult) for message in request.messages)
        if done % 100 == 0:
            sizes.append(used())
        return call("look", number=done) if done < TURNS else "Done."

    async def story(engine: Engine) -> None:
        run = (await engine.submit("clerk", "Look them up.", principal=ANN)).run
        assert (await engine.wait(run.id, ANN, timeout=60)).status == "completed"

    with_engine(store, [Clerk], script, story)
    growth = [after - before for before, after in pairwise(sizes)]
    assert len(growth) == 4
    assert max(growth[1:]) <= 1.2 * growth[0] + 16 * 1024, growth
    assert sizes[-1] - sizes[0] <= HALF_OF_A_PEER
