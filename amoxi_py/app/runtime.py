"""One process's parts, made from settings and declarations, started and stopped as a whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.models import AgentModels, find_models
from amoxi_py.app.process import tune_process
from amoxi_py.app.runs import Runs
from amoxi_py.app.store import make_store
from amoxi_py.config.load import load_settings
from amoxi_py.config.own_sections import load_own_sections
from amoxi_py.config.settings import Settings
from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import Instances
from amoxi_py.declare.ingredient import Ingredient
from amoxi_py.declare.injection import open_instances
from amoxi_py.declare.scan import Declarations
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings, Executes
from amoxi_py.ports.chat_model import ChatModel
from amoxi_py.ports.operator_store import OperatorStore
from amoxi_py.ports.store import Store

T = TypeVar("T")
log = logging.getLogger("amoxi_py.app")

_LAST_MOMENTS_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIns:
    """What a test gives in place of a process's real parts.

    Attributes:
        model: Answers for every agent, and is closed at the stop; None for the models that the app names.
        instances: Ready instances by type; such a type is not made.
        wrap_store: Gives what stands before the store.
    """

    model: ChatModel | None = None
    instances: Mapping[type[Any], Any] = field(default_factory=dict)
    wrap_store: Callable[[Store], Store] | None = None


class Runtime:
    """The store, the app's instances and the engine of one process; `stopped` when all of it has ended.

    With `stand_ins` it is a guest in the process of a test, which it leaves as it is.
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
        given = stand_ins or StandIns()
        self._models = _models_of(declarations, settings, given.model)
        self._given = given.instances
        self._own = load_own_sections(settings, declarations.settings, given.instances.keys())
        self._instances = _LateInstances()
        store = make_store(settings)
        self._store = store if given.wrap_store is None else given.wrap_store(store)
        self._entered = AsyncExitStack()
        self._handing_over: asyncio.Task[None] | None = None
        self.stopped = False
        engine_settings = replace(engine_settings_of(settings), executes=executes)
        self.engine = Engine(
            store=self._store,
            catalog=declarations.catalog,
            instances=self._instances,
            models=self._models,
            settings=engine_settings if worker is None else replace(engine_settings, worker=worker),
            handlers=declarations.handlers,
        )
        self.runs = Runs(self.engine, cast(OperatorStore, self._store), settings.app_name)

    @property
    def instances(self) -> Instances:
        """The app's instances; they exist from the start to the stop."""
        return self._instances

    def get(self, kind: type[T]) -> T:
        """Return the app's one instance of a type; models with `@settings` are there before the start.

        Raises:
            LookupError: nothing of it is made, or not yet.
        """
        early: Mapping[type[Any], Any] = {**self._own.models, **self._given}
        found: T = early[kind] if kind in early else self._instances.get(kind)
        return found

    def configure(self, app: Any) -> None:
        """Call the app's `@configure` functions with its web application; the settings exist before the start."""
        for function in self.declarations.configure:
            function.call(app, {**self._own.models, **self._given})

    async def start(self) -> None:
        """Make the app's instances, open the store, and begin to execute runs."""
        if not self._guest:
            tune_process()
        self._entered.push_async_callback(self._models.aclose)
        try:
            self._instances.opened = await self._entered.enter_async_context(
                open_instances(
                    self.declarations.singletons,
                    {Runs: self.runs, **self._own.models, **self._given},
                    self.declarations.providers,
                )
            )
            await self.engine.start()
        except BaseException:
            await self._close()
            raise
        self._tell()

    def begin_stop(self, *, hurry: bool = False) -> None:
        """Begin to hand the runs over, at once and in the background; call it on the event loop.

        In a hurry only what cannot be cut off without a cost gets the grace.
        """
        if self._handing_over is None:
            grace = self.settings.server.stop_grace_s
            self._handing_over = asyncio.get_running_loop().create_task(self.engine.stop_working(grace, hurry=hurry))

    async def stop(self) -> None:
        """Hand the runs over, then close the store, the app's instances and the models made here."""
        self.begin_stop()
        assert self._handing_over is not None
        try:
            await asyncio.wait_for(self._handing_over, self.settings.server.stop_grace_s + _LAST_MOMENTS_S)
        except TimeoutError:
            log.warning("some runs could not be handed over in time; they go on when this worker's lease expires")
        await self._close()

    async def secret(self, proposed: str) -> str:
        """Return what signs the visitors' cookies: as set, else the one that the store keeps."""
        given = self.settings.server.secret
        return given.get_secret_value() if given is not None else await self._store.secret("visitor-cookie", proposed)

    async def _close(self) -> None:
        try:
            await self.engine.stop()
        finally:
            await self._entered.aclose()
            self.stopped = True

    def _tell(self) -> None:
        settings, engine = self.settings, self.engine
        for warning in (*settings.warnings, *self._own.warnings):
            log.warning("%s", warning)
        log.info("app %s, profile %s", settings.app_name, settings.profile)
        log.info("agents: %s", ", ".join(sorted(engine.catalog.agents)) or "none")
        log.info("store: %s", settings.store_folder)
        log.info("models: %s", ", ".join(self._models.names) or "none")
        if not engine.settings.worker:
            log.info("this process executes no runs ('ai.runs.worker' is false)")
        if "offline" in self._models.names and not settings.dev and not self._guest:
            log.warning("the offline model answers: set 'ai.model', or the key of a provider such as OPENAI_API_KEY")


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


def _models_of(declarations: Declarations, settings: Settings, model: ChatModel | None) -> AgentModels:
    if model is None:
        return find_models(declarations.catalog, settings)
    return AgentModels(dict.fromkeys(declarations.catalog.agents, model), (model,))


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
        max_result=ai.tools.max_result_kb * 1024,
        max_file=ai.files.max_mb * 1024 * 1024,
        models_at_once=ai.models.concurrency,
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
