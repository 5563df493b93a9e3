"""The operator's door: what the person who runs the app may do with the runs of all principals.

Whoever can open the store may read all of it, so nobody is asked who they are. What an operator does to a run is done
by the ordinary verbs in its owner's name; only a decision is told as the operator's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Literal

from msgspec.structs import replace

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.event import Event
from amoxi_py.domain.ids import parse_call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.streams import EventStream, read_pages
from amoxi_py.errors import NotFound
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.kept_data import Forgotten, Purged
from amoxi_py.ports.operator_store import OperatorStore, RunFilter
from amoxi_py.ports.views import CallView, Page

_LOOKS = 2
_ERASED_AT_ONCE = 10


class Operator:
    """Lists, reads, cancels, retries and decides over all principals; `principal` is who does it."""

    def __init__(
        self, engine: Engine, store: OperatorStore, principal: Principal, *, clock: Clock | None = None
    ) -> None:
        self.principal = principal
        self._engine = engine
        self._store = store
        self._clock = clock or store.clock

    @property
    def store(self) -> OperatorStore:
        """Where surfaces keep what is theirs alone."""
        return self._store

    def now(self) -> float:
        """Return the time of the store's clock."""
        return self._clock.now()

    async def list_runs(self, wanted: RunFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        """Return runs that fit, newest first; fewer than `limit` only at the end of all runs.

        Raises:
            InvalidRequest: the cursor is none.
        """
        found: tuple[Run, ...] = ()
        while True:
            page = await self._store.find_runs(wanted, limit=limit - len(found), cursor=cursor)
            found += page.items
            cursor = page.next_cursor
            if cursor is None or len(found) >= limit:
                return Page(items=found, next_cursor=cursor)

    async def get_run(self, run_id: str) -> Run:
        """Return a run; raise `NotFound`."""
        return await self._engine.get_run(run_id, await self._store.owner_of(run_id))

    async def messages(self, run_id: str) -> tuple[Message, ...]:
        """Return all messages of a run with their calls, in order; raise `NotFound`."""
        return await self._store.run_messages(run_id, await self._store.owner_of(run_id))

    async def events(self, run_id: str) -> AsyncGenerator[Event, None]:
        """Give the events of a run that are in its log now; raise `NotFound`."""
        position = await self._store.find_log(await self._store.owner_of(run_id), run_id=run_id)
        async with aclosing(read_pages(self._store, position, position.first_seq - 1)) as pages:
            async for page in pages:
                for event in page:
                    if event.seq > position.last_seq:
                        return
                    yield event

    async def follow(self, run_id: str) -> EventStream:
        """Return the events of a run from its start to its end, as they come; raise `NotFound`."""
        return await self._engine.follow(await self._store.owner_of(run_id), run_id=run_id)

    async def cancel(self, run_id: str) -> Run:
        """End a run now and return it; one that had ended is returned unchanged. Raise `NotFound`."""
        return await self._engine.cancel(run_id, await self._store.owner_of(run_id))

    async def retry(self, run_id: str) -> Run:
        """Do what `Engine.retry` does, in the name of the run's owner."""
        return await self._engine.retry(run_id, await self._store.owner_of(run_id))

    async def purge(self, older_than_s: float, *, dry_run: bool = False) -> AsyncGenerator[Purged, None]:
        """Delete the conversations that nothing was added to for so many seconds, piece by piece; give each piece.

        Those with an open run stay, one that waits included. A dry run only counts.
        """
        before, after = self._clock.now() - older_than_s, 0
        while True:
            purged = await self._store.purge(before, after=after, dry_run=dry_run)
            yield purged
            if purged.next is None:
                return
            after = purged.next

    async def erase(
        self, principal: Principal, *, on_conversation: Callable[[], None] = lambda: None
    ) -> tuple[int, Forgotten]:
        """End what a principal's runs do and delete all that is kept of it; return its conversations, and the rest.

        What comes from it meanwhile is deleted too, as long as it is there when the last look is taken. It may be done
        again at any time.

        Args:
            principal: Who; the same id in another tenant is somebody else.
            on_conversation: Called after each conversation.
        """
        count, forgotten = 0, Forgotten()
        for _ in range(_LOOKS):
            cursor: str | None = None
            while True:  # from the newest back, so that who goes on talking does not keep it from ending
                page = await self._store.list_conversations(principal, limit=_ERASED_AT_ONCE, cursor=cursor)
                erasing = (self._erase(one.id, principal, on_conversation) for one in page.items)
                count += sum(await asyncio.gather(*erasing))
                cursor = page.next_cursor
                if cursor is None:
                    break
            forgotten += await self._store.forget_principal(principal)
        return count, forgotten

    async def _erase(self, conversation_id: str, principal: Principal, done: Callable[[], None]) -> bool:
        try:
            await self._engine.erase(conversation_id, principal)
        except NotFound:  # somebody else was quicker
            return False
        done()
        return True

    async def list_approvals(self, *, limit: int = 50, cursor: str | None = None) -> Page[CallView]:
        """Return the calls that wait for anybody's decision, those of the oldest run first.

        Raises:
            InvalidRequest: the cursor is none.
        """
        return await self._store.open_approvals(self._clock.now(), limit=limit, cursor=cursor)

    async def decide(
        self,
        call_id: str,
        decision: Literal["approve", "decline"],
        *,
        reason: str | None = None,
        arguments: dict[str, object] | None = None,
    ) -> tuple[Approval, CallView]:
        """Decide about a call, whatever the rule about its approver is; the first decision wins.

        Raises:
            NotFound: no such approval.
            Conflict: decided otherwise, expired, or over.
            InvalidRequest: the edited arguments do not fit the tool, or come with a decline.
        """
        place = parse_call_id(call_id)
        if place is None:
            raise NotFound("approval", call_id)
        try:
            owner = await self._store.owner_of(place[0])
        except NotFound:
            raise NotFound("approval", call_id) from None
        return await self._engine.decide(
            call_id, self.principal, decision, reason=reason, arguments=arguments, owner=owner
        )

    async def answer(
        self, call_id: str, value: object, *, question: str | None = None, k: int | None = None
    ) -> CallView:
        """Answer a question of a call, whoever owns its run; the first answer wins.

        Raises:
            NotFound: no such call, or it has asked nothing.
            Conflict: answered otherwise, not asked any more, or the call has no such question.
            InvalidRequest: the answer does not fit, or is too long.
        """
        place = parse_call_id(call_id)
        if place is None:
            raise NotFound("question", call_id)
        try:
            owner = await self._store.owner_of(place[0])
        except NotFound:
            raise NotFound("question", call_id) from None
        return await self._engine.answers.answer(call_id, self.principal, value, question=question, k=k, owner=owner)

    async def question(self, call_id: str) -> CallView:
        """Return a call with the question that it asked last in `call.wait`; raise `NotFound` when it asked nothing."""
        place = parse_call_id(call_id)
        if place is None:
            raise NotFound("question", call_id)
        try:
            view = await self._store.get_call(call_id, await self._store.owner_of(place[0]))
        except NotFound:
            raise NotFound("question", call_id) from None
        questions = [wait for wait in view.waits if wait.kind == "question"]
        if not questions:
            raise NotFound("question", call_id)
        return replace(view, call=replace(view.call, wait=questions[-1]))

    async def signal(self, run_id: str, name: str, payload: object, *, idempotency_key: str | None = None) -> str:
        """Send a signal to a run, whoever owns it, and return the signal's id.

        Raises:
            NotFound: no such run.
            Conflict: it has ended, or keeps too many signals.
            InvalidRequest: the name is none, or the payload is no JSON or too long.
        """
        owner = await self._store.owner_of(run_id)
        return await self._engine.answers.signal(
            run_id, self.principal, name, payload, idempotency_key=idempotency_key, owner=owner
        )
