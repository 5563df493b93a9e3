"""One process's parts, made from settings and declarations, started and stopped as a whole."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.embedder import embedder_of
from amoxi_py.app.logs import hiding_in_logs
from amoxi_py.app.metrics import Metrics
from amoxi_py.app.models import AgentModels, find_models
from amoxi_py.app.numbers import Process
from amoxi_py.app.process import tune_process
from amoxi_py.app.runs import Runs
from amoxi_py.app.store import limits_of, make_store, place_of_store
from amoxi_py.app.tracing import start_tracing
from amoxi_py.config.load import load_settings
from amoxi_py.config.own_sections import load_own_sections
from amoxi_py.config.settings import Settings
from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import Instances
from amoxi_py.declare.ingredient import Ingredient
from amoxi_py.declare.injection import open_instances
from amoxi_py.declare.scan import Declarations
from amoxi_py.domain.retry import patient_for
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings, Executes
from amoxi_py.ports.chat_model import ChatModel
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.embedder import Embedder
from amoxi_py.ports.operator_store import OperatorStore
from amoxi_py.ports.store import Store

T = TypeVar("T")
log = logging.getLogger("amoxi_py.app")

_LAST_MOMENTS_S = 1.3  # and a moment more to cut off what is left


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIns:
    """What a test gives in place of a process's real parts.

    Attributes:
        model: Answers for every agent, or those of a mapping by the agent's name, and is closed at the stop; None for
            the models that the app names.
        instances: Ready instances by type; such a type is not made.
        wrap_store: Gives what stands before the store.
        clock: The calendar of a store of the type `file`; None for the machine's.
    """

    model: ChatModel | Mapping[str, ChatModel] | None = None
    instances: Mapping[type[Any], Any] = field(default_factory=dict)
    wrap_store: Callable[[Store], Store] | None = None
    clock: Clock | None = None


@dataclass(slots=True, kw_only=True)
class _Life:
    """What is made anew for each start."""

    store: OperatorStore
    engine: Engine
    instances: _LateInstances
    models: AgentModels
    embedder: Embedder
    entered: AsyncExitStack = field(default_factory=AsyncExitStack)
    handing_over: asyncio.Task[None] | None = None
    leave_by: float = 0.0


class Runtime:
    """The store, the app's instances and the engine of one process; `stopped` when all of it has ended.

    It may start again after it has stopped, with new parts. With `stand_ins` it is a guest in the process of a test,
    which it leaves as it is. `metrics` tells what it counts, with the `responses` of a web server.
    """

    def __init__(
        self,
        settings: Settings,
        declarations: Declarations,
        *,
        worker: bool | None = None,
        executes: Executes = "all",
        stand_ins: StandIns | None = None,
    ) -> None:
        self.settings = settings
        self.declarations = declarations
        self._guest = stand_ins is not None
        self._given = stand_ins or StandIns()
        engine_settings = replace(engine_settings_of(settings), executes=executes)
        self._engine_settings = engine_settings if worker is None else replace(engine_settings, worker=worker)
        self._life = self._new_life()
        self._own = load_own_sections(settings, declarations.settings, self._given.instances.keys())
        self._early: Mapping[type[Any], Any] = {**self._own.models, **self._given.instances}  # there before the start
        self._started = False
        self.stopped = False
        self.responses: Mapping[str, int] = {}
        self.metrics = Metrics(self._counting, lambda: self.store.backlog(self.engine.now()))
        self.runs = Runs(self, settings.app_name)
        self.on_enrolled: Callable[[str], None] = lambda worker_id: None

    @property
    def engine(self) -> Engine:
        """Executes the runs of this life."""
        return self._life.engine

    @property
    def store(self) -> OperatorStore:
        """Keeps the runs; open from the start to the stop."""
        return self._life.store

    @property
    def instances(self) -> Instances:
        """The app's instances; they exist from the start to the stop."""
        return self._life.instances

    def get(self, kind: type[T]) -> T:
        """Return the app's one instance of a type; models with `@settings` are there before the start.

        Raises:
            LookupError: nothing of it is made, or not yet, or no more.
        """
        if kind not in self._early and self.stopped:
            raise LookupError(f"{kind.__qualname__!r} was closed when the process stopped")
        found: T = self._early[kind] if kind in self._early else self.instances.get(kind)
        return found

    def configure(self, app: Any) -> None:
        """Call the app's `@configure` functions with its web application; the settings exist before the start."""
        for function in self.declarations.configure:
            function.call(app, self._early)

    def refuse_if_started(self) -> None:
        """Raise `RuntimeError` between a start and the end of the stop that follows it."""
        if self._started:
            raise RuntimeError(
                f"the app {self.settings.app_name!r} has started already; stop it first, or make another one"
            )

    async def start(self) -> None:
        """Make the app's instances, open the store, and begin to execute runs.

        Raises:
            RuntimeError: it has started already.
        """
        self.refuse_if_started()
        if self.stopped:
            self._life = self._new_life()
        self._started, self.stopped = True, False
        if not self._guest:
            tune_process()
        life = self._life
        if not self._guest:
            send_spans = start_tracing(self.settings.app_name, os.environ)
            life.entered.push_async_callback(asyncio.to_thread, send_spans)
        life.entered.push_async_callback(life.models.aclose)
        life.entered.push_async_callback(life.embedder.aclose)
        try:
            life.instances.opened = await life.entered.enter_async_context(
                open_instances(
                    self.declarations.singletons,
                    {Runs: self.runs, **self._early},
                    self.declarations.providers,
                )
            )
            if life.engine.redaction.active:
                life.entered.enter_context(hiding_in_logs(life.engine.redaction.text))
            life.engine.on_enrolled = self.on_enrolled
            await life.engine.start()
            self.metrics.start()
        except BaseException:
            await self._close()
            raise
        self._tell()

    def begin_stop(self, *, hurry: bool = False) -> None:
        """Begin to hand the runs over, at once and in the background; call it on the event loop.

        In a hurry only what cannot be cut off without a cost gets the grace.
        """
        life = self._life
        if life.handing_over is None:
            grace, loop = self.settings.server.stop_grace_s, asyncio.get_running_loop()
            life.leave_by = loop.time() + grace
            life.handing_over = loop.create_task(life.engine.stop_working(grace, hurry=hurry))

    async def stop(self) -> None:
        """Hand the runs over, then close the store, the app's instances and the models made here."""
        self.begin_stop()
        handing_over = self._life.handing_over
        assert handing_over is not None
        try:
            await asyncio.wait_for(handing_over, self.settings.server.stop_grace_s + _LAST_MOMENTS_S)
        except TimeoutError:
            log.warning("some runs could not be handed over in time; they go on when this worker's lease expires")
        await self._close()

    async def secret(self, proposed: str) -> str:
        """Return what signs the visitors' cookies: as set, else the one that the store keeps."""
        given = self.settings.server.secret
        return given.get_secret_value() if given is not None else await self.store.secret("visitor-cookie", proposed)

    def _new_life(self) -> _Life:
        instances = _LateInstances()
        models = _models_of(self.declarations, self.settings, instances, self._given.model)
        embedder = embedder_of(self.settings)
        store: Store = make_store(self.settings, clock=self._given.clock)
        if self._given.wrap_store is not None:
            store = self._given.wrap_store(store)
        engine = Engine(
            store=store,
            catalog=self.declarations.catalog,
            instances=instances,
            models=models,
            facts=models,
            settings=self._engine_settings,
            handlers=self.declarations.handlers,
            embedder=embedder,
        )
        store.measures.tools = _names_of_tools(self.declarations)
        kept = cast(OperatorStore, store)
        return _Life(store=kept, engine=engine, instances=instances, models=models, embedder=embedder)

    def _counting(self) -> Process:
        return Process(engine=self.engine, store=self.store.measures, responses=self.responses)

    async def _close(self) -> None:
        life = self._life
        try:
            await life.engine.stop(max(life.leave_by - asyncio.get_running_loop().time(), 0.0))
        finally:
            await self.metrics.stop()
            try:
                await life.entered.aclose()
            finally:
                self._started, self.stopped = False, True

    def _tell(self) -> None:
        settings, engine = self.settings, self.engine
        for warning in (*settings.warnings, *self._own.warnings):
            log.warning("%s", warning)
        log.info("app %s, profile %s", settings.app_name, settings.profile)
        log.info("agents: %s", ", ".join(sorted(engine.catalog.agents)) or "none")
        log.info("store: %s", place_of_store(settings))
        log.info("models: %s", ", ".join(self._life.models.names) or "none")
        if not engine.settings.worker:
            log.info("this process executes no runs ('ai.runs.worker' is false)")
        if engine.settings.limits.cost_per_day:
            models = self._life.models
            unpriced = {name for agent in engine.catalog.agents.values() for name in models.unpriced(agent)}
            if unpriced:
                names = ", ".join(sorted(unpriced))
                log.warning("'ai.limits.usd-per-day' counts nothing for models without a known price: %s", names)
        if "offline" in self._life.models.names and not settings.dev and not self._guest:
            log.warning("the offline model answers: set 'ai.model', or the key of a provider such as ANTHROPIC_API_KEY")


class _LateInstances:
    """The app's instances, which exist from the start of the process to its stop."""

    opened: Instances | None = None

    def get(self, kind: type[Any]) -> Any:
        if self.opened is None:
            raise LookupError(f"{kind.__qualname__!r} is made when the process starts, which it has not yet")
        return self.opened.get(kind)

    async def inject(
        self, wanted: Iterable[Ingredient], ctx: RunContext, use: Callable[[dict[str, Any]], Awaitable[T]]
    ) -> T:
        assert self.opened is not None, "the process has not started"
        return await self.opened.inject(wanted, ctx, use)


def _names_of_tools(declarations: Declarations) -> frozenset[str]:
    catalog = declarations.catalog
    of_agents = (tool.name for agent in catalog.agents.values() for tool in agent.tools)
    return frozenset((*catalog.tools, *of_agents))


def _models_of(
    declarations: Declarations,
    settings: Settings,
    instances: Instances,
    model: ChatModel | Mapping[str, ChatModel] | None,
) -> AgentModels:
    if model is None:
        return find_models(declarations.catalog, settings, instances)
    by_agent = model if isinstance(model, Mapping) else dict.fromkeys(declarations.catalog.agents, model)
    return AgentModels(by_agent, {id(each): each for each in by_agent.values()}.values())


def engine_settings_of(settings: Settings) -> EngineSettings:
    """Return what the engine is told of the settings."""
    ai = settings.ai
    return EngineSettings(
        worker=ai.runs.worker,
        lease=ai.runs.lease_ms / 1000,
        concurrency=ai.runs.concurrency,
        parallel_calls=ai.runs.parallel_calls,
        tool_threads=ai.tools.threads,
        max_attempts=ai.runs.max_attempts,
        on_busy=ai.runs.on_busy,
        approvals_expire_after=ai.approvals.expire_after_s,
        mcp_approvals=ai.mcp.approvals,
        max_result=ai.tools.max_result_kb * 1024,
        max_file=ai.files.max_mb * 1024 * 1024,
        models_at_once=ai.models.concurrency,
        model_retry=patient_for(ai.models.max_wait_s),
        transcripts_ttl=ai.conversations.ttl_s,
        limits=limits_of(settings),
        memory_most=ai.memory.most,
        memory_days=ai.memory.days,
        memory_at_start=ai.memory.at_start,
    )


@asynccontextmanager
async def open_runtime(
    settings: Settings | None = None,
    *,
    package: str | None = None,
    profile: str | None = None,
    worker: bool | None = None,
) -> AsyncIterator[Runtime]:
    """Start the app of a folder without a web server, and stop it at the end.

    Args:
        settings: Of the app; read from the current folder by default.
        package: Instead of the one that the settings name.
        profile: Of the settings, when they are read here.
        worker: Whether runs are executed, instead of what the settings say.
    """
    settings = settings or load_settings(profile=profile)
    runtime = Runtime(settings, read_declarations(settings, package), worker=worker)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
