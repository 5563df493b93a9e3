"""A file that an older version made is taken over as it is: nothing is lost, and what is new works on what is old."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.usage import Usage
from amoxi_py.domain.wait import Wait
from amoxi_py.ports.changes import Change, NewWait, Summary
from amoxi_py.ports.inputs import Answer
from amoxi_py.stores.sqlite.migrate import DATABASE, migrations
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
RUN = "run_00000000000000000000000001"
LAST_OF_1_0 = 8
ROWS = f"""
INSERT INTO conversation VALUES (1, 'conv_1', '{ANN.owner_key}', 'shop-agent', 'Hello', 4, NULL, 1000, 1000);
INSERT INTO run (key, id, conversation, principal, facts, status, wake_at, attempt, fence, requests, input_tokens,
    output_tokens, first_seq, created_at, updated_at)
VALUES (1, '{RUN}', 1, '{ANN.owner_key}', '{{}}', 'queued', 1000, 1, 1, 1, 20, 3, 1, 1000, 1000);
INSERT INTO message VALUES (1, 0, 'msg_0', 1000, NULL, NULL, 'hello'), (1, 1, 'msg_1', 1000, NULL, NULL, '');
INSERT INTO tool_call VALUES (1, 1, 0, 'lookup', 'read_only', 'started', 1, 0, '{{}}', NULL);
INSERT INTO step VALUES (1, 1, 0, 'look', 0, '"found"');
INSERT INTO event (conversation, seq, run, type, turn, n) VALUES
    (1, 1, 1, 1, NULL, NULL), (1, 2, 1, 5, 0, NULL), (1, 3, 1, 5, 1, NULL), (1, 4, 1, 7, 1, 0);
"""


def older_file(folder: Path) -> None:
    """Make a file with a run in it, as the version before waits had it."""
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, made_at INTEGER)")
        for number, name, script in migrations():
            if number <= LAST_OF_1_0:
                database.executescript(script)
                database.execute("INSERT INTO migration VALUES (?, ?, 0)", (number, name))
        database.executescript(ROWS)


@pytest.mark.anyio
async def test_a_run_of_an_older_file_goes_on_with_all_that_it_had(tmp_path: Path) -> None:
    older_file(tmp_path)
    store = SqliteStore(tmp_path, synchronous="OFF")
    await store.open(lambda events: None)
    try:
        run = await store.get_run(RUN, ANN)
        assert (run.status, run.usage) == (RunStatus.QUEUED, Usage(requests=1, input_tokens=20, output_tokens=3))
        (rows,) = await store.claim(await store.enroll("worker_1", 30.0), 1, 10)
        assert [message.text for message in rows.messages] == ["hello", ""]
        assert [step.value for step in rows.steps[1, 0]] == ['"found"']
        (call,) = rows.messages[1].calls
        assert (call.wait, rows.waits, rows.ancestors, rows.created_at) == (None, {}, (), 1.0)
        wait = NewWait(turn=1, n=0, wait=Wait(k=1, kind="question", name="Which?", created_at=2.0))
        summary = Summary(run_id=RUN, turn=0, text="They said hello.")
        await store.write(Change(lease=rows.lease, number=1, waits=(wait,), summary=summary))
        await store.answer(Answer(call_id=call.id, k=1, principal=ANN, value='"this"'))
        assert (await store.load(rows.lease)).waits[1, 0][0].value == '"this"'
        assert (await store.history(rows.lease)).summary == summary
        position = await store.find_log(ANN, run_id=RUN)
        log = (await store.read_log(position, 0, 100, 10**6)).events
        assert [event.type.label for event in log][2:] == [
            "message.completed",
            "tool.called",
            "run.resumed",
            "question.answered",
        ]
    finally:
        await store.close()
