"""What a long conversation stores and takes: 400 turns of one run, or 400 messages, with results of 400 bytes.

`python bench/long.py [--turns 400] [--store sqlite|postgres] [--messages]` prints, for each quarter, the bytes stored,
the CPU time of this process and the letters of the last request, all per turn. With `--messages` each turn is a run of
its own. PostgreSQL is one of its own, which is started for this.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from database import database
from loads import ANA, OneModel

from amoxi_py import agent, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.engine.engine import Engine
from amoxi_py.models.script import call
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, ToolResult, UserMessage
from amoxi_py.ports.store import Store
from amoxi_py.stores.sqlite.store import SqliteStore

RESULT = "x" * 400
_SCHEMA = "amoxi"


@tool(read_only=True)
async def look(number: int) -> str:
    """Look a number up.

    Args:
        number: Which
    """
    return RESULT


@agent(tools=[look], max_turns=1_000_000, compaction=False)
class Clerk:
    """You look numbers up."""


class Turns:
    """A model that calls the tool at each turn, and notes at four of them what was used until then."""

    def __init__(self, turns: int, size: Callable[[], int], *, one_run: bool) -> None:
        self.points: list[tuple[int, float, int, int]] = []
        self._turns = turns
        self._size = size
        self._one_run = one_run

    def __call__(self, request: ModelRequest) -> Any:
        done = sum(isinstance(message, ToolResult) for message in request.messages)
        asks = isinstance(request.messages[-1], UserMessage) or (self._one_run and done < self._turns)
        if asks and done % (self._turns // 4) == 0:
            self.note(done, sum(map(_letters, request.messages)))
        return call("look", number=done) if asks else "Done."

    def note(self, turn: int, letters: int) -> None:
        """Note what was used up to a turn."""
        self.points.append((turn, time.process_time(), self._size(), letters))


async def main(turns: int, store: Store, size: Callable[[], int], *, one_run: bool) -> None:
    """Hold the conversation, and print what it took."""
    declarations = build_declarations([Clerk])
    model = Turns(turns, size, one_run=one_run)
    async with open_instances(declarations.singletons, {}) as instances:
        engine = Engine(
            store=store,
            catalog=declarations.catalog,
            instances=instances,
            models=OneModel(ScriptedModel(model, record=False, strict=False)),
        )
        await engine.start()
        conversation = None
        for _ in range(1 if one_run else turns):
            run = (await engine.submit("clerk", "Look it up.", principal=ANA, conversation_id=conversation)).run
            conversation = run.conversation_id
            ended = await engine.wait(run.id, ANA, timeout=600)
            assert ended.status == "completed", ended
        model.note(turns, model.points[-1][3])
        await engine.stop()
    print("turns        bytes/turn   CPU ms/turn   letters of a request")
    for before, after in pairwise(model.points):
        count = after[0] - before[0]
        print(
            f"{before[0]:4} to {after[0]:4}{(after[2] - before[2]) / count:13,.0f}"
            f"{1000 * (after[1] - before[1]) / count:14.2f}{after[3]:16,}"
        )
    print(f"stored in all: {(model.points[-1][2] - model.points[0][2]) / 1024:,.0f} KiB")


def _letters(message: UserMessage | AssistantMessage | ToolResult) -> int:
    if isinstance(message, AssistantMessage):
        return len(message.text) + sum(len(one.name) + len(one.arguments) for one in message.calls)
    return len(message.content)


@contextmanager
def _sqlite() -> Iterator[tuple[Store, Callable[[], int]]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)

        def size() -> int:
            (file,) = path.glob("*.db")
            with sqlite3.connect(file) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                pages, free, page = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("page_count", "freelist_count", "page_size")
                )
            connection.close()
            return int((pages - free) * page)

        yield SqliteStore(path), size


@contextmanager
def _postgres() -> Iterator[tuple[Store, Callable[[], int]]]:
    from amoxi_py.stores.postgres.store import PostgresStore

    with database(None) as db:
        yield PostgresStore(db.url, schema=_SCHEMA), lambda: db.size(_SCHEMA)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--messages", action="store_true")
    options = parser.parse_args()
    with {"sqlite": _sqlite, "postgres": _postgres}[options.store]() as (made, stored):
        asyncio.run(main(options.turns, made, stored, one_run=not options.messages))
