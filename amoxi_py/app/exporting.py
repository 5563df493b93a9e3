"""All that an app keeps of one principal, as JSON objects, one after the other; docs/guides/data.md tells the format.

No secret is among them: of a connection there is the program's name, of a webhook nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from amoxi_py.app.oauth import grants_of
from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.event import message_json, time_text
from amoxi_py.domain.ids import call_id
from amoxi_py.domain.memory import space_of
from amoxi_py.domain.principal import Principal, principal_to_json
from amoxi_py.engine.memories import memory_of
from amoxi_py.engine.operator import Operator
from amoxi_py.errors import NotFound
from amoxi_py.ports.kept_data import KeptRun
from amoxi_py.ports.views import Page
from amoxi_py.surfaces.http.answers import run_json

T = TypeVar("T")
FORMAT = 1
_PIECE = 512 * 1024


async def export_principal(operator: Operator, principal: Principal) -> AsyncGenerator[dict[str, Any], None]:
    """Give what is kept of a principal, a bounded number of rows in memory at a time; each object has a `type`.

    The first one is of the type `export`. Of a file there is what is known of it: `file_bytes` has the bytes.
    """
    store = operator.store
    yield {
        "type": "export",
        "format": FORMAT,
        "principal": principal.id,
        "tenant": principal.tenant,
        "exported_at": time_text(operator.now()),
    }
    for connection in await grants_of(lambda: store).connections(principal):
        yield {
            "type": "connection",
            "program": connection.client_name,
            "target": connection.target,
            "created_at": time_text(connection.created_at),
        }
    async for one in _all(lambda cursor: store.list_conversations(principal, cursor=cursor)):
        yield {
            "type": "conversation",
            "id": one.id,
            "agent": one.agent,
            "title": one.title,
            "created_at": time_text(one.created_at),
            "updated_at": time_text(one.updated_at),
        }
        async for kept in _all(partial(_runs_of, operator, one.id, principal)):
            for line in _run_lines(kept, operator.now()):
                yield line
    async for file in _all(lambda cursor: store.kept_files(principal, cursor=cursor)):
        yield {
            "type": "file",
            "id": file.file.id,
            "name": file.file.name,
            "media_type": file.file.media_type,
            "size": file.file.size,
            "sha256": file.digest,
            "created_at": time_text(file.created_at),
        }
    async for passage in _all(lambda cursor: store.list_passages(space_of(principal), cursor=cursor)):
        memory = memory_of(passage)
        yield {
            "type": "memory",
            "id": memory.id,
            "key": memory.key,
            "text": memory.text,
            "metadata": memory.metadata,
            "created_at": time_text(memory.created_at),
            "updated_at": time_text(memory.updated_at),
        }
    async for made in _all(lambda cursor: store.made_decisions(principal, cursor=cursor)):
        yield {
            "type": "decision",
            "call_id": made.call_id,
            "run_id": made.run_id,
            "decision": made.decision,
            "reason": made.reason,
            "decided_at": time_text(made.decided_at),
        }


async def file_bytes(operator: Operator, principal: Principal, file_id: str) -> AsyncGenerator[bytes, None]:
    """Give the bytes of a principal's file, in pieces of at most half a megabyte; raise `NotFound`."""
    start = 0
    while piece := await operator.store.read_file(file_id, principal, start, _PIECE):
        yield piece
        start += len(piece)


async def _runs_of(operator: Operator, conversation_id: str, who: Principal, cursor: str | None) -> Page[KeptRun]:
    try:
        return await operator.store.kept_runs(conversation_id, who, cursor=cursor)
    except NotFound:  # it was deleted since it was listed
        return Page(items=())


def _run_lines(kept: KeptRun, now: float) -> list[dict[str, Any]]:
    run, rows = kept.run, kept.rows
    asked_by = {"id": run.principal.id, **principal_to_json(run.principal)}
    lines: list[dict[str, Any]] = [
        {
            "type": "run",
            **run_json(run),
            "root_id": run.root_id,
            "principal": asked_by,
            "instructions": rows.instructions,
        }
    ]
    lines += [{"type": "message", **message_json(message, now=now)} for message in rows.messages]
    for (turn, n), steps in rows.steps.items():
        of_call = {"type": "step", "call_id": call_id(run.id, turn, n)}
        lines += [of_call | {"name": one.name, "failed": one.failed, "value": decode_json(one.value)} for one in steps]
    for (turn, n), waits in rows.waits.items():
        of_call = {"type": "wait", "call_id": call_id(run.id, turn, n)}
        lines += [
            of_call
            | {
                "k": one.k,
                "kind": one.kind,
                "name": one.name,
                "value": None if one.value is None else decode_json(one.value),
                "by": one.by,
                "created_at": time_text(one.created_at),
            }
            for one in waits
        ]
    for summary in kept.summaries:
        at = time_text(summary.created_at)
        lines.append({"type": "summary", "run_id": run.id, "text": summary.text, "created_at": at})
    return lines


async def _all(read: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    cursor: str | None = None
    while True:
        page = await read(cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
