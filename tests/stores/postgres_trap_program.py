"""A process that freezes in the middle of its transaction: `postgres_trap_program.py URL SCHEMA MOMENT LIMIT`.

It claims a run under a lease of a second, prints its id, and stops itself while it writes a change of the run:
`between` what it reads first and what it writes, or `sending`, when the server has begun with what it writes and waits
for the rest. LIMIT is `limit`, or `no-limit` for a transaction that no limit of the server ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from typing import Any

from msgspec.structs import replace

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.changes import Change
from amoxi_py.ports.store import Submission
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.postgres.store import PostgresStore
from amoxi_py.stores.sql import changes, verb
from amoxi_py.stores.sql.batch import Batch

LIMITS = (b"'3s'", b"'20s'")


async def main(url: str, schema: str, moment: str, limit: str) -> None:
    store = PostgresStore(url, schema=schema)
    if limit == "no-limit":
        begin = store._address.statements["begin_writing"]
        text = begin.text
        for one in LIMITS:
            text = text.replace(one, b"'0'")
        store._address.statements = {**store._address.statements, "begin_writing": replace(begin, text=text)}
    await store.open(lambda events: None)
    worker = await store.enroll(new_id("worker"), 1.0)
    submitted = await store.submit(
        Submission(
            run_id=new_id("run"),
            message_id=new_id("msg"),
            conversation_id=new_id("conv"),
            new_conversation=True,
            agent="a",
            principal=Principal(id="user:ann"),
            text="hello",
            claim_by=worker,
        )
    )
    assert submitted.rows is not None
    lease = submitted.rows.lease
    print(lease.run_id, flush=True)
    write = changes.write
    say = Line.say
    armed: list[int] = []

    def arm(batch: Batch, of: list[Change]) -> Any:
        armed.append(threading.get_ident())
        return write(batch, of)

    def stop_at_commit(line: Line, text: str) -> Any:
        if text == "COMMIT" and armed == [threading.get_ident()]:
            armed.append(0)
            if moment == "sending":
                line._libpq.send_flush_request()
                line._flush()
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread does nothing more before it
        return say(line, text)

    verb.write = arm  # type: ignore[attr-defined]  # the process freezes in the transaction of the change
    Line.say = stop_at_commit  # type: ignore[method-assign]
    message = Message(
        id=new_id("msg"), run_id=lease.run_id, turn=1, role="assistant", text="late", calls=(), created_at=0.0
    )
    await store.write(Change(lease=lease, number=1, message=message))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
