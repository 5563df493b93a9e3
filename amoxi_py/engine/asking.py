"""What the model of a run is asked with, turn after turn: instructions, the conversation so far, and the tools."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from amoxi_py.declare.compaction import Compaction
from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.encoding import clean_text
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunRows
from amoxi_py.domain.usage import NO_USAGE, Usage
from amoxi_py.engine import compacting
from amoxi_py.engine.asides import was_cut, with_reading
from amoxi_py.engine.budget import BudgetUsedUp, Spent, used_up
from amoxi_py.engine.context import AgentContext
from amoxi_py.engine.deltas import Deltas, NoDeltas
from amoxi_py.engine.exits import cancelled_from_outside
from amoxi_py.engine.hooks import RunHooks
from amoxi_py.engine.journal import Journal
from amoxi_py.engine.measures import TurnClock
from amoxi_py.engine.parts import Parts
from amoxi_py.engine.remembered import with_memories
from amoxi_py.engine.sent_files import SentFiles
from amoxi_py.engine.tracing import RunSpans
from amoxi_py.engine.transcript import model_messages
from amoxi_py.engine.turns import ask
from amoxi_py.errors import ModelFailed
from amoxi_py.ports.changes import History, Summary
from amoxi_py.ports.chat_model import Asked, ChatModel, ModelMessage, ModelRequest, Reply, ToolSpec

log = logging.getLogger("amoxi_py.runs")

_PIECE_SHARE = 0.6
"""How much of the window what is to be summarised may take at once."""
_LEAST = 500
"""Letters that are worth giving way: a summary is hardly shorter."""


class Asking:
    """Asks the model of one run. What was told once is told again the same way, so that providers can cache it.

    `new_instructions` is what the agent's method has said, until it is stored. `spent` counts what requests have used,
    as soon as that is known: those that failed and those for summaries too. `turns` times the turns; the last one ends
    with the run.
    """

    def __init__(
        self,
        parts: Parts,
        journal: Journal,
        context: AgentContext,
        rows: RunRows,
        history: tuple[Message, ...] | None,
        spent: Spent,
        hooks: RunHooks,
        spans: RunSpans,
    ) -> None:
        self.new_instructions: str | None = None
        self.turns = TurnClock(time.perf_counter, partial(parts.measures.turn, rows.agent))
        self._parts = parts
        self._journal = journal
        self._context = context
        self._history = None if history is None else History(messages=history)
        if history is not None:
            parts.transcripts.begun(rows)
        self._instructions = rows.instructions
        self._rows = rows
        self._spent = spent
        self._hooks = hooks
        self._spans = spans
        self._gauge = compacting.Gauge()
        self._refused: int | None = None  # letters of the shortest request that was too long
        self._no_summary = self._compacted = False
        self._told: list[ModelMessage] = []
        self._letters = 0
        self._reads_results = False
        self._thread: list[tuple[Message, int, int]] = []  # messages as they were told: their place, their letters
        self._told_up_to = 0
        self._model: ChatModel | None = None
        self._failures = 0
        self._files = SentFiles(parts.files.store, journal, context.principal, parts.settings.max_result)

    async def reply(
        self,
        agent: AgentDefinition,
        tools: tuple[ToolSpec, ...],
        messages: Sequence[Message],
        deltas: Deltas | NoDeltas,
        failures: int = 0,
    ) -> Reply:
        """Return the model's reply to the run's own `messages`, all of them settled; `failures` are earlier tries.

        Raises:
            ModelFailed: there is none, or none that can be used.
            BudgetUsedUp: the model must not be asked any more.
        """
        self._failures = failures
        self.turns.begin()
        try:
            return await self._reply(agent, tools, messages, deltas)
        except BaseException:
            self.turns.drop()
            raise

    def ended(self, messages: Sequence[Message], seq: int | None) -> None:
        """Keep what was said for the next run, after the run was completed with the event `seq`, if it was."""
        self.turns.end()
        if seq is not None and not (self._compacted or self._parts.redaction.active):
            self._parts.transcripts.ended(self._journal.lease, messages, seq)

    async def _reply(
        self,
        agent: AgentDefinition,
        tools: tuple[ToolSpec, ...],
        messages: Sequence[Message],
        deltas: Deltas | NoDeltas,
    ) -> Reply:
        if self._model is None:  # once while the run is executed here: a function of the app may choose it
            self._model = await self._parts.models.model_for(agent, self._context)
        model = self._model
        compaction = agent.compaction
        while True:  # each time round something has given way
            request = await self._request(agent, tools, messages)
            letters = compacting.request_letters(request, self._letters)
            if compaction is not None and await self._grown(compaction, agent, model, letters):
                continue
            if compaction is not None and self._too_long(letters) and await self._shrink(compaction, agent, model):
                continue
            try:
                reply = await self._answer(agent, model, request, deltas, letters)
            except ModelFailed as error:
                if compaction is None or error.code != compacting.TOO_LONG or deltas.stored:
                    raise
                if not await self._shrink(compaction, agent, model):
                    raise
            else:
                self._gauge.learn(letters, reply.usage.input_tokens)
                return reply

    async def _answer(
        self,
        agent: AgentDefinition,
        model: ChatModel,
        request: ModelRequest,
        deltas: Deltas | NoDeltas,
        letters: int,
    ) -> Reply:
        """Make one request to the provider, whatever it is for, when the budgets allow it."""
        failure = await used_up(self._parts, self._journal, self._rows, agent, self._spent)
        if failure is not None:
            raise BudgetUsedUp(failure)
        places = self._parts.model_places
        request = await self._hooks.before_model(request)
        try:
            if places is None:
                reply = await self._ask(model, request, deltas)
            else:
                async with places.place(self._context.principal.owner_key, self._journal.lease.conversation):
                    reply = await self._ask(model, request, deltas)
        except ModelFailed as error:
            if error.code == compacting.TOO_LONG and not self._too_long(letters):
                self._refused = letters
            raise
        asked = reply.model or model.name
        usage = self._spend(asked, reply.usage)
        self._parts.measures.request(asked, "ok", usage)
        answered = await self._hooks.after_model(reply)
        return self._parts.redaction.reply(answered if answered.usage == usage else replace(answered, usage=usage))

    async def _ask(self, model: ChatModel, request: ModelRequest, deltas: Deltas | NoDeltas) -> Reply:
        asked, begun = model.name, time.perf_counter()
        measures = self._parts.measures
        with self._spans.model(asked) as span:

            def tell(told: Asked) -> None:
                nonlocal asked, begun
                if told.failed is not None:
                    self._failed(asked, told.failed.usage)
                if span is not None:
                    span.asking(told)
                asked, begun = told.model, time.perf_counter()

            def heard() -> None:
                measures.first_token(asked, time.perf_counter() - begun)

            try:
                reply = await ask(model, request, deltas, tell, heard)
            except ModelFailed as error:
                self._failed(asked, error.usage)
                raise
            if span is not None:
                span.answered(reply)
        return reply

    def _failed(self, model: str, usage: Usage | None) -> None:
        self._parts.measures.request(model, "failed", self._spend(model, usage))

    def _spend(self, model: str, usage: Usage | None) -> Usage:
        """Count what a request has used, and return it with its price; None is nothing."""
        if usage is None:
            return NO_USAGE
        cost = self._parts.facts.cost_of(model, usage) or 0
        usage = usage if cost == usage.cost else replace(usage, cost=cost)
        self._spent.add(replace(usage, requests=1))
        return usage

    async def _request(
        self, agent: AgentDefinition, tools: tuple[ToolSpec, ...], messages: Sequence[Message]
    ) -> ModelRequest:
        if self._history is None:
            self._history = await self._journal.persist(lambda: self._parts.transcripts.history(self._rows))
        if not self._told:
            await self._tell_from_the_start(self._history, messages)
        self._tell(messages[self._told_up_to :])
        self._told_up_to = len(messages)
        if self._instructions is None:
            self._instructions = await self._instructions_for(agent, messages[0].text)
        return ModelRequest(
            instructions=self._instructions,
            messages=tuple(self._told),
            tools=with_reading(agent, tools) if self._reads_results else tools,
            options=agent.model_options,
            failures=self._failures,
        )

    async def _tell_from_the_start(self, history: History, messages: Sequence[Message]) -> None:
        self._told, self._thread, self._letters, self._told_up_to = [], [], 0, 0
        await self._files.choose([*history.messages, *messages])
        summary = history.summary
        if summary is not None:
            own = summary.run_id == self._journal.lease.run_id
            self._told_up_to = sum(message.turn <= summary.turn for message in messages) if own else 0
            self._told.append(compacting.summary_message(summary.text, messages[0] if own else None))
            self._letters += compacting.letters_of(self._told[0])
            self._reads_results = self._reads_results or "file_" in summary.text
        self._tell(history.messages)

    def _tell(self, messages: Sequence[Message]) -> None:
        for message in messages:
            told = model_messages((message,), self._files.known, self._files.shown)
            letters = sum(map(compacting.letters_of, told))
            self._thread.append((message, len(self._told), letters))
            self._told.extend(told)
            self._letters += letters
            self._reads_results = self._reads_results or any(map(was_cut, told))

    # -- old turns that give way

    async def _grown(self, compaction: Compaction, agent: AgentDefinition, model: ChatModel, letters: int) -> bool:
        """Let old turns give way when the request nears the model's window; return whether any did."""
        window = compaction.window or getattr(model, "window", None)
        if window is None or self._no_summary:
            return False
        if self._gauge.tokens(letters) < compaction.at * window:
            return False
        beside = letters - self._letters
        room = self._gauge.letters(compaction.keep * window) - beside
        piece = self._gauge.letters(_PIECE_SHARE * window)
        count = compacting.give_way([one for _, _, one in self._thread], room)
        try:
            await self._compact(compaction, agent, model, count, piece)
        except ModelFailed as error:  # the request may fit all the same, and the next ones until it does not
            self._no_summary = True
            log.warning("run %s: its old turns could not be summarised: %s", self._journal.lease.run_id, error)
        return not self._told

    def _too_long(self, letters: int) -> bool:
        """Whether one that was no longer has been refused before."""
        return self._refused is not None and letters >= self._refused

    async def _shrink(self, compaction: Compaction, agent: AgentDefinition, model: ChatModel) -> bool:
        """Let at least half of what can give way do so, because a request was refused; return whether there was any."""
        letters = [letters for _, _, letters in self._thread]
        refused = self._refused or 0
        count = compacting.give_way(letters, min(refused, sum(letters)) // 2)
        if sum(letters[:count]) < _LEAST:
            return False
        await self._compact(compaction, agent, model, count, refused // 2)
        return True

    async def _compact(
        self, compaction: Compaction, agent: AgentDefinition, model: ChatModel, count: int, piece: int
    ) -> None:
        """Let the oldest `count` messages give way, piece by piece; each is recorded when it is done.

        Raises:
            ModelFailed: the model cannot make a summary; what is recorded stays.
        """
        assert self._history is not None
        thread, told = self._thread, self._told

        async def ask_plainly(request: ModelRequest) -> Reply:
            return await self._answer(agent, model, request, NoDeltas(), compacting.own_letters(request))

        done = 0
        while done < count:
            before = None if self._history.summary is None else self._history.summary.text
            places = [place for _, place, _ in thread[done : count + 1]]
            step = compacting.fitting(told, places, piece, before)
            old = compacting.Told(messages=told[places[0] : places[step]], summary=before)
            try:
                text = await compacting.summarise(old, compaction.instructions, ask_plainly, piece)
            except ModelFailed as error:
                if error.code != compacting.TOO_LONG or piece <= compacting.SMALLEST_PIECE:
                    raise
                piece = max(min(piece, self._refused or piece) // 2, compacting.SMALLEST_PIECE)
                continue
            done += step
            await self._record(text, thread[done - 1][0], [message for message, _, _ in thread[done:]], step)

    async def _record(self, text: str, last: Message, rest: Sequence[Message], count: int) -> None:
        """Store the summary of all up to and with `last`, and begin anew with it."""
        summary = Summary(run_id=last.run_id, turn=last.turn, text=text)
        told = NewEvent(type=EventType.HISTORY_COMPACTED, data=compacting.compacted_data(count))
        change = self._journal.change(summary=summary, usage=self._spent.to_store(), events=(told,))
        await self._journal.write(change)
        own = self._journal.lease.run_id
        log.info("run %s: %d old messages gave way to a summary", own, count)
        self._history = History(messages=tuple(message for message in rest if message.run_id != own), summary=summary)
        self._compacted = True
        self._told = []

    async def _instructions_for(self, agent: AgentDefinition, message: str) -> str:
        """Return what the agent is told in this run.

        What it remembers may be another thing a moment later, so with that it is recorded before the model is asked:
        whoever goes on with the run tells the same.
        """
        instructions = await self._ask_instructions(agent)
        if not agent.memory:
            return instructions
        memories, most = self._parts.memories, self._parts.settings.memory_at_start
        principal = self._context.principal
        found = await self._journal.persist(lambda: memories.at_start(principal, message, most))
        instructions = self._parts.redaction.text(with_memories(instructions, found))
        await self._journal.write(self._journal.change(instructions=instructions))
        self.new_instructions = None
        return instructions

    async def _ask_instructions(self, agent: AgentDefinition) -> str:
        if isinstance(agent.instructions, str):
            return agent.instructions
        try:
            text = clean_text(await agent.instructions(self._parts.instances, self._context))
            self.new_instructions = self._parts.redaction.text(text)
            return self.new_instructions
        except BaseException as error:
            if cancelled_from_outside(error):
                raise
            log.exception("the instructions of %s failed", agent.where)
            message = "the agent's instructions could not be made"
            raise ModelFailed(message, code="instructions_failed", retryable=False) from error
