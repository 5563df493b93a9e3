"""The app that the A2A TCK is run against, by hand (docs/conformance.md), does what the TCK expects of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from amoxi_py.app.web import create_app
from amoxi_py.config.load import load_settings

pytestmark = pytest.mark.anyio

APP = Path(__file__).parent / "conformance_app"
PACKAGE = "app_of_the_tck"  # `app` is somebody else's in this process

Send = Callable[..., Coroutine[Any, Any, Any]]


@pytest.fixture
def tck(tmp_path: Path, tokens: dict[str, str]) -> Any:
    """Send a message as the TCK does, and return what came back: `async with tck() as send`."""

    @asynccontextmanager
    async def start() -> AsyncIterator[Send]:
        shutil.copytree(APP / "app", tmp_path / PACKAGE)
        shutil.copy(APP / "application.json", tmp_path)
        environ = {"AI_A2A_CALLERS_TCK": tokens["kits"], "AI_A2A_DEDUPLICATE": "false"}
        given = {"app.package": PACKAGE, "ai.store.path": str(tmp_path / "store")}
        app = create_app(load_settings(tmp_path, profile="test", environ=environ, given=given))
        headers = {"authorization": f"Bearer {tokens['kits']}", "a2a-version": "1.0"}
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", headers=headers) as http,
        ):

            async def send(message_id: str, text: str = "TCK", **more: Any) -> Any:
                message = {"role": "ROLE_USER", "messageId": message_id, "parts": [{"text": text}], **more}
                request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
                return (await http.post("/a2a/", json=request)).json()["result"]

            yield send

    yield start
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


async def test_the_beginning_of_a_messages_id_chooses_how_its_task_goes(tck: Any) -> None:
    async with tck() as send:
        for message_id, first in {
            "tck-complete-task-1": {"text": "Hello from TCK"},
            "tck-stream-001-1": {"text": "Stream hello from TCK"},
            "tck-artifact-text-1": {"text": "Generated text content"},
            "tck-artifact-data-1": {"data": {"key": "value", "count": 42}},
        }.items():
            task = (await send(message_id))["task"]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            assert first.items() <= task["artifacts"][0]["parts"][0].items()
        for message_id, kind in {"tck-artifact-file-1": "raw", "tck-artifact-file-url-1": "url"}.items():
            part = (await send(message_id))["task"]["artifacts"][0]["parts"][0]
            assert (part["filename"], part["mediaType"]) == ("output.txt", "text/plain")
            assert part[kind]
        assert (await send("tck-message-response-1"))["message"]["parts"] == [{"text": "Direct message response"}]

        task = (await send("tck-input-required-1"))["task"]
        for message_id, text, state in (
            ("tck-input-required-1", "TCK history message 1", "INPUT_REQUIRED"),
            ("tck-complete-task-1", "TCK complete after history", "COMPLETED"),
        ):
            task = (await send(message_id, text, taskId=task["id"]))["task"]
            assert task["status"]["state"] == f"TASK_STATE_{state}"

        task = (await send("any-other-1"))["task"]
        for number in range(2):
            task = (await send(f"any-other-{number + 2}", taskId=task["id"]))["task"]
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
