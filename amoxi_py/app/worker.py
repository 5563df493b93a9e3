"""A process that executes runs and serves nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from amoxi_py.app.logs import configure_logging
from amoxi_py.app.memory_watch import watch_memory
from amoxi_py.app.process import tune_memory
from amoxi_py.app.runtime import open_runtime
from amoxi_py.app.stopping import StopSignals
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings

log = logging.getLogger("amoxi_py.app")


def run_worker(on_stop: Callable[[float], None]) -> None:
    """Execute runs of the app in the current folder until a signal ends it.

    Args:
        on_stop: Called in the signal's handler with the seconds in which the process will have stopped.
    """
    settings = load_settings()
    configure_logging(settings)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_work(settings, on_stop))


async def _work(settings: Settings, on_stop: Callable[[float], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_first() -> None:
        on_stop(settings.server.stop_grace_s)
        loop.call_soon_threadsafe(stop.set)

    async with open_runtime(settings, worker=True) as runtime:
        signals = StopSignals(on_first, forward=False)
        signals.install()
        tune_memory()
        watch_memory(lambda: runtime.engine.executing)
        log.info("the worker is ready")
        await stop.wait()
    signals.restore()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # it does not exist for Windows
    except ImportError:
        return None
    return uvloop.new_event_loop
