"""What is remembered of messages to tasks that require input: what each was for, and what it said.

Of a message that decides nothing only the beginning is kept, and of a task only so many such messages: its caller may
send any number of them.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.redaction import Redaction
from amoxi_py.ports.records import Record, RecordStore
from amoxi_py.surfaces.a2a.caller_keys import caller_key

KIND = "a2a.answer"
MOST_REFUSED = 100
"""How many messages that decide nothing are kept of a task."""
_KEPT_S = 30 * 24 * 3600.0
_MOST_OF_A_TASK = 1000
_BEGINNING = 500
_LONGEST_REFUSAL = 2000


class Asked(Struct, frozen=True, kw_only=True):
    """The one open thing that a message is for: a call to be decided about, or with `k` a question of it."""

    call_id: str
    k: int | None = None
    schema: str | None = None


class KeptAnswer(Struct, frozen=True, kw_only=True):
    """A message: what it was for, or why it decides nothing; `at` is when it came, in seconds since 1970.

    `late` is whether it decides nothing because what it was for was over when it came.
    """

    run_id: str
    message_id: str
    said: str
    at: float
    digest: str
    asked: Asked | None = None
    refusal: str | None = None
    late: bool = False


class KeptAnswers:
    """The messages of callers, by their ids; where the same id may come again for something else, by none."""

    def __init__(self, records: RecordStore, redaction: Redaction, *, deduplicate: bool) -> None:
        self._records = records
        self._redaction = redaction
        self._deduplicate = deduplicate

    def key_of(self, message_id: str, principal: Principal) -> str:
        """Return the key of a message that has come."""
        names = (message_id,) if self._deduplicate else (message_id, new_id("answer"))
        return caller_key(principal, *names)

    async def find(self, key: str) -> KeptAnswer | None:
        """Return what is remembered of a message."""
        record = await self._records.find_record(KIND, key) if self._deduplicate else None
        return None if record is None else decode(record.content, type=KeptAnswer)

    async def keep(self, key: str, kept: KeptAnswer) -> KeptAnswer:
        """Remember a message, instead of what was remembered of it, and return it without what the app hides."""
        hide = self._redaction
        refusal = None if kept.refusal is None else hide.text(kept.refusal)[:_LONGEST_REFUSAL]
        kept = replace(kept, said=hide.text(kept.said), refusal=refusal)
        if refusal is not None and len(kept.said) > _BEGINNING:
            kept = replace(kept, said=f"{kept.said[:_BEGINNING]}...")
        content, expires_at = encode(kept).decode(), kept.at + _KEPT_S
        await self._records.keep_record(
            Record(kind=KIND, key=key, group=kept.run_id, content=content, expires_at=expires_at)
        )
        return kept

    async def refuse(self, key: str, kept: KeptAnswer, refusal: str, *, late: bool) -> KeptAnswer | None:
        """Remember that a message decides nothing, or return None, and forget it, where there are too many such."""
        refused = [one for one in await _kept_of(self._records, kept.run_id) if one.refusal is not None]
        if len(refused) >= MOST_REFUSED:
            await self._records.take_record(KIND, key)
            return None
        return await self.keep(key, replace(kept, asked=None, refusal=refusal, late=late))


async def answers_of(records: RecordStore, run: Run) -> list[Message]:
    """Return the messages by which a run's caller has answered it, without those that came too late."""
    return [
        Message(id=one.message_id, run_id=run.id, turn=0, role="user", text=one.said, created_at=one.at)
        for one in await _kept_of(records, run.id)
        if not one.late
    ]


async def _kept_of(records: RecordStore, run_id: str) -> list[KeptAnswer]:
    found = await records.find_records(KIND, run_id, limit=_MOST_OF_A_TASK)
    return [decode(record.content, type=KeptAnswer) for record in found]
