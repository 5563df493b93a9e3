"""Which files a run shows to the person with its next reply: what its tools have saved, and agents it asked."""

from __future__ import annotations

from collections.abc import Sequence

from amoxi_py.domain.ids import child_run_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.engine.asides import aside_files
from amoxi_py.engine.journal import Journal
from amoxi_py.errors import NotFound
from amoxi_py.ports.store import Store


class ShownFiles:
    """The files of one run.

    `saved` are those that its tools have saved so far, or None when they have to be looked up.
    """

    def __init__(self, store: Store, journal: Journal, principal: Principal, saved: list[str] | None) -> None:
        self._store = store
        self._journal = journal
        self._principal = principal
        self._saved = saved

    def note(self, file_id: str) -> None:
        """Take note that a tool has saved a file."""
        if self._saved is not None and file_id not in self._saved:
            self._saved.append(file_id)

    async def to_show(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return those that no reply has shown yet."""
        if self._saved is None:
            self._saved = list(await self._journal.persist(lambda: self._store.files_of_run(self._journal.lease)))
        asked = [call for call in messages[-1].calls if call.wait is not None and call.wait.kind == "child"]
        found = [*self._saved, *[file_id for call in asked for file_id in await self._shown_by(call)]]
        if not found:
            return ()
        hidden = {file_id for message in messages if message.turn > 0 for file_id in message.files}
        hidden |= aside_files(call for message in messages for call in message.calls)
        return tuple(file_id for file_id in dict.fromkeys(found) if file_id not in hidden)

    async def _shown_by(self, call: ToolCall) -> tuple[str, ...]:
        run_id = child_run_id(call.id)
        try:
            messages = await self._journal.persist(lambda: self._store.run_messages(run_id, self._principal))
        except NotFound:  # the call was refused, or stopped before it began
            return ()
        return files_shown(messages)


def files_shown(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the files that the replies of a run have shown."""
    return tuple(file_id for message in messages if message.turn > 0 for file_id in message.files)
