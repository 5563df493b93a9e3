"""The app under test behind a real socket of this machine, in a thread of the test's own process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import uvicorn

from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.app.web import Serving, web_app
from amoxi_py.testing.app_under_test import AnyModel, declarations_of, models_of_test, settings_of_test
from amoxi_py.testing.client import Client

_START_S = 30.0
_STOP_S = 15.0


class AppServer:
    """A running app; it is a context manager.

    Args:
        folder: Where `application.json` is.
        store: The folder of its store.
        model: Answers for every agent, or those of a mapping by the agent's name.
        replace: Instances by type, in place of the app's own.
        settings: By key; they win over the files. Visitors without a token are let in unless the files say otherwise.
        package: The app's package, instead of the one that the settings name.

    Attributes:
        url: Its address, without a slash at the end.
    """

    def __init__(
        self,
        folder: Path,
        store: Path,
        *,
        model: AnyModel | Mapping[str, AnyModel] = "offline",
        replace: Mapping[type[Any], Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        package: str | None = None,
    ) -> None:
        wanted = settings_of_test(folder, store, settings)
        if "ai.http.anonymous" not in wanted.sources:
            wanted = settings_of_test(folder, store, {**(settings or {}), "ai.http.anonymous": True})
        replaced = dict(replace or {})
        declarations = declarations_of(None, package or wanted.app.package, replaced.keys())
        self._prefix = wanted.ai.http.prefix or ""
        models = models_of_test(model, declarations.catalog.agents)
        self._app = web_app(Runtime(wanted, declarations, stand_ins=StandIns(model=models, instances=replaced)))
        self._clients: list[Client] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        config = uvicorn.Config(self._app, log_config=None, access_log=False, ws="none", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listening]}, name="amoxi-app", daemon=True
        )

    def client(self, *, token: str | None = None) -> Client:
        """Return a new caller with a cookie of its own, or a program with a token; closed with the server."""
        client = Client(self.url + self._prefix, token=token)
        self._clients.append(client)
        return client

    def start(self) -> None:
        """Serve; raise what the app failed with when it does not start."""
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive():
                serving: Serving = self._app.state.amoxi
                raise serving.failure or RuntimeError("the app's server ended before it was ready; its log says why")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the app did not start in {_START_S:g} s")
            time.sleep(0.005)

    def stop(self) -> None:
        """End the open streams, then the server and the parts of the app."""
        for client in self._clients:
            client.close()
        serving: Serving = self._app.state.amoxi
        serving.door.closing.set()
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._listening.close()
        if self._thread.is_alive():
            raise TimeoutError(f"the app did not stop in {_STOP_S:g} s")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
