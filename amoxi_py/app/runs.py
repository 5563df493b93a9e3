"""`Runs`: the door for the app's own code, the same that the surfaces use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal, Protocol

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.encoding import clean_text, decode_json
from amoxi_py.domain.memory import DOCS, Citation, Memory
from amoxi_py.domain.placing import placed_by_code
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus
from amoxi_py.domain.run_event import RunEvent, run_event
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.operator import Operator
from amoxi_py.errors import InvalidRequest
from amoxi_py.ports.operator_store import OperatorStore, RunFilter
from amoxi_py.ports.views import Page

_WAIT_AT_ONCE_S = 3600.0
_MOST_LISTED = 1000


class Process(Protocol):
    """Whose runs they are; it may have a second life, with another engine and store."""

    @property
    def engine(self) -> Engine: ...

    @property
    def store(self) -> OperatorStore: ...


class Runs:
    """Starts runs from Python, and looks at, follows and ends them; keeps and finds memories of principals.

    It is injected by type. The app's code is trusted: without a `principal` it reaches the runs of everybody. Code that
    acts for a person, such as a route of the app, names that person: then someone else's run is not found.

    A `Principal` without a channel is one of the app's users, as a sign-in names them: it is stored as `user:<id>`,
    whatever the id says. One with a channel, as a run, an event and a context have it, is taken as it is; so is
    `Principal(id="system:nightly", channel="code")` that code writes on purpose. What comes from outside, such as an id
    of an identity provider, must be named without a channel.

    Every method raises `StoreUnavailable` while the store cannot be used, also before the app has started and after it
    has stopped. The errors are those of HTTP, with the same `code`.
    """

    def __init__(self, process: Process, app_name: str) -> None:
        self._process = process
        self._app = Principal(id=f"system:{clean_text(app_name)}", name=clean_text(app_name), channel="code")

    @property
    def _engine(self) -> Engine:
        return self._process.engine

    @property
    def _store(self) -> OperatorStore:
        return self._process.store

    @property
    def _operator(self) -> Operator:
        return Operator(self._engine, self._store, self._app)

    async def submit(
        self,
        agent: str,
        message: str,
        *,
        principal: Principal | None = None,
        conversation_id: str | None = None,
        idempotency_key: str | None = None,
        files: tuple[str, ...] = (),
    ) -> Run:
        """Save a message and its run, and return the run at once; a worker executes it.

        Args:
            agent: The agent's name, such as `support-agent`; one that no door shows is fine.
            message: What is said to it.
            principal: Whose run it is; the app's own (`system:<app name>`) when it is left out.
            conversation_id: An earlier conversation of the same principal with the same agent.
            idempotency_key: The same key with the same request of the same principal gives the same run, for 24 hours.
            files: Ids of files of the same principal.

        Raises:
            NotFound: no such agent, or no such conversation or file of this principal.
            Conflict: the key was used for another request, or the conversation is busy and the agent refuses.
            InvalidRequest: the message is empty or too long, or the principal cannot be stored.
            TooMany: no more is admitted now; come again after its `retry_after` seconds.
        """
        submitted = await self._engine.submit(
            agent,
            message,
            principal=self._whose(principal),
            conversation_id=conversation_id,
            idempotency_key=idempotency_key,
            files=tuple(files),
        )
        return submitted.run

    async def wait(self, run_id: str, *, timeout: float | None = None, principal: Principal | None = None) -> Run:
        """Return the run when it has ended, or as it is after `timeout` seconds; raise `NotFound`.

        Without a timeout it waits for as long as the run does, which may be days when a person has to decide.
        """
        owner = await self._owner(run_id, principal)
        while True:
            left = _WAIT_AT_ONCE_S if timeout is None else timeout
            run = await self._engine.wait(run_id, owner, timeout=left)
            if timeout is not None or run.status.final:
                return run

    async def events(
        self, run_id: str, *, after: int | None = None, principal: Principal | None = None
    ) -> AsyncGenerator[RunEvent, None]:
        """Give the events of a run to its end, as they come: from the start, or after an event's id.

        Raises:
            NotFound: no such run.
        """
        owner = await self._owner(run_id, principal)
        run = await self._engine.get_run(run_id, owner)
        stream = await self._engine.follow(owner, run_id=run_id, after=after)
        async with aclosing(stream.__aiter__()) as batches:
            async for batch in batches:
                for event in batch:
                    yield run_event(
                        event, agent=run.agent, conversation_id=run.conversation_id, principal=run.principal
                    )

    async def get(self, run_id: str, *, principal: Principal | None = None) -> Run:
        """Return a run; raise `NotFound`."""
        return await self._engine.get_run(run_id, await self._owner(run_id, principal))

    async def list(
        self,
        *,
        principal: Principal | None = None,
        agent: str | None = None,
        status: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Run]:
        """Return runs, newest first: `items`, and the `next_cursor` of the next page, or None at the end.

        Args:
            principal: Whose; everybody's when it is left out.
            agent: Of this agent only.
            status: In this status only, such as `"failed"`.
            limit: The most runs of this page.
            cursor: The `next_cursor` of the page before.

        Raises:
            InvalidRequest: the cursor or the status is none, or the limit is not from 1 to 1000.
        """
        _check_listed(limit)
        owner = None if principal is None else placed_by_code(principal)
        if owner is not None and status is None:
            return await self._engine.list_runs(owner, agent, limit=limit, cursor=cursor)
        wanted = RunFilter(status=_status(status), agent=agent, owner_key=None if owner is None else owner.owner_key)
        return await self._operator.list_runs(wanted, limit=limit, cursor=cursor)

    async def cancel(self, run_id: str, *, principal: Principal | None = None) -> Run:
        """End a run now and return it; one that had ended is returned unchanged. Raise `NotFound`."""
        return await self._engine.cancel(run_id, await self._owner(run_id, principal))

    async def retry(self, run_id: str, *, principal: Principal | None = None) -> Run:
        """Submit the message of a run that has ended once more, in the same conversation, and return the new run.

        Raises:
            NotFound: no such run, or its agent exists no more.
            Conflict: the run has not ended, or the conversation is busy and the agent refuses.
            TooMany: no more is admitted now.
        """
        return await self._engine.retry(run_id, await self._owner(run_id, principal))

    async def decide(
        self,
        call_id: str,
        decision: Literal["approve", "decline"],
        *,
        by: Principal | None = None,
        reason: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> Approval:
        """Decide about a call that waits for approval, and return what is recorded; the first decision wins.

        Args:
            call_id: The call.
            decision: What.
            by: Who decides, and may do so by the tool's `approver`. Without it the app itself does, which may decide
                about every call.
            reason: Told to the model.
            arguments: To run with instead of the model's; only with an approval.

        Raises:
            NotFound: no such approval for this principal.
            Forbidden: the run's owner, who is not the approver.
            Conflict: decided otherwise, expired, or over.
            InvalidRequest: the decision is none, the edited arguments do not fit the tool, or come with a decline.
        """
        if decision not in ("approve", "decline"):
            raise InvalidRequest(f"the decision {decision!r} must be 'approve' or 'decline'")
        if by is None:
            approval, _ = await self._operator.decide(call_id, decision, reason=reason, arguments=arguments)
        else:
            who = placed_by_code(by)
            approval, _ = await self._engine.decide(call_id, who, decision, reason=reason, arguments=arguments)
        return approval

    async def answer(
        self,
        call_id: str,
        value: Any,
        *,
        by: Principal | None = None,
        question: str | None = None,
        k: int | None = None,
    ) -> Any:
        """Answer a question of a call, and return the answer that is recorded; the first one wins.

        Args:
            call_id: The call.
            value: A JSON value that fits the question, or a text when it has no schema.
            by: Who answers, which the run's owner may. Without it the app itself does.
            question: The text of the question that is answered, so that an answer that is sent twice is not taken for
                one to the next question of the same call.
            k: The question's number in the call, as `question.asked` and `waiting_for` tell it, for the same purpose.

        Raises:
            NotFound: the call is none of this principal's, or has asked nothing.
            Conflict: answered otherwise, not asked any more, or the call has no such question.
            InvalidRequest: the answer does not fit, or is longer than 64 KB as JSON.
        """
        if by is None:
            view = await self._operator.answer(call_id, value, question=question, k=k)
        else:
            view = await self._engine.answers.answer(call_id, placed_by_code(by), value, question=question, k=k)
        wait = view.call.wait
        return None if wait is None or wait.value is None else decode_json(wait.value)

    async def signal(
        self,
        run_id: str,
        name: str,
        payload: Any = None,
        *,
        principal: Principal | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Send a signal to a run; it is kept until one of its tools waits for it by its name.

        Args:
            run_id: The run.
            name: What `ctx.wait_for` waits for: letters, digits, `_`, `.` and `-`, up to 100.
            payload: A JSON value that `ctx.wait_for` returns.
            principal: Whose run it must be.
            idempotency_key: The same key for the same run is the same signal, which comes once.

        Raises:
            NotFound: no such run of this principal.
            Conflict: the run has ended, or keeps too many signals.
            InvalidRequest: the name is none, or the payload is no JSON or longer than 64 KB.
        """
        if principal is None:
            await self._operator.signal(run_id, name, payload, idempotency_key=idempotency_key)
        else:
            who = placed_by_code(principal)
            await self._engine.answers.signal(run_id, who, name, payload, idempotency_key=idempotency_key)

    async def remember(
        self,
        text: str,
        *,
        principal: Principal | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Keep a text about a principal, for all of its conversations, and return it as it is stored.

        Args:
            text: What agents with `memory=True` and tools should know later; at most 8,000 characters.
            principal: About whom; the app's own (`system:<app name>`) when it is left out, here and in all below.
            key: A name such as `address`, at most 200 characters: the text takes the place of what had that key.
            metadata: Plain JSON that the app keeps with it, at most 4,000 characters.

        Raises:
            InvalidRequest: one of them cannot be kept (`memory_invalid`).
            Conflict: there are as many memories as `ai.memory.most` allows (`memory_full`).
        """
        return await self._engine.memories.remember(self._whose(principal), text, key=key, metadata=metadata)

    async def recall(self, query: str, *, principal: Principal | None = None, limit: int = 5) -> tuple[Memory, ...]:
        """Return what is remembered of a principal and fits a query, the best first, at most 50.

        Raises:
            InvalidRequest: the query or the limit cannot be one (`memory_invalid`).
        """
        return await self._engine.memories.recall(self._whose(principal), query, limit)

    async def forget(self, key: str, *, principal: Principal | None = None) -> bool:
        """Delete a principal's memory of a key, or with an id, at once and for good; return whether there was one.

        Raises:
            InvalidRequest: the key cannot be one (`memory_invalid`).
        """
        return await self._engine.memories.forget(self._whose(principal), key)

    async def memories(
        self, *, principal: Principal | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Memory]:
        """Return what is remembered of a principal, what was written last first, as `list` returns runs.

        Raises:
            InvalidRequest: the cursor is none, or the limit is not from 1 to 1000.
        """
        _check_listed(limit)
        return await self._engine.memories.list(self._whose(principal), limit=limit, cursor=cursor)

    async def search_docs(self, query: str, *, base: str = DOCS, limit: int = 5) -> tuple[Citation, ...]:
        """Return the passages of a knowledge base that fit a query, the best first, each with where it stands.

        Raises:
            InvalidRequest: the query, the base's name or the limit cannot be one (`memory_invalid`).
        """
        return await self._engine.memories.search_docs(query, base=base, limit=limit)

    def _whose(self, principal: Principal | None) -> Principal:
        return self._app if principal is None else placed_by_code(principal)

    async def _owner(self, run_id: str, principal: Principal | None) -> Principal:
        return await self._store.owner_of(run_id) if principal is None else placed_by_code(principal)


def _check_listed(limit: int) -> None:
    if not 1 <= limit <= _MOST_LISTED:
        raise InvalidRequest(f"the limit {limit!r} must be from 1 to {_MOST_LISTED}")


def _status(status: str | None) -> RunStatus | None:
    try:
        return None if status is None else RunStatus(status)
    except ValueError:
        known = ", ".join(repr(one.value) for one in RunStatus)
        raise InvalidRequest(f"there is no status {status!r}; the statuses are: {known}") from None
