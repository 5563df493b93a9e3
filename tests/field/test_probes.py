"""The probes tell the truth while the database is cut off, and from the signal on that ends the server."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from cutting_proxy import cutting_proxy

pytestmark = pytest.mark.crash

APP = '''
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call
from .ledger import gate, note


@tool(idempotent=True)
async def hold(ctx: ToolContext) -> str:
    """Hold until the gate is opened."""
    note("holding", ctx)
    await gate("held")
    return "held"


@agent(tools=[hold], model=ScriptedModel({"*": [call("hold"), "Held."]}))
class Holder:
    """You hold."""
'''


def test_a_server_whose_database_is_cut_off_is_alive_and_not_ready_until_it_is_back(
    field_app: Any, start: Any, client: Any, until: Any, postgres_url: str
) -> None:
    with cutting_proxy(postgres_url) as lines:
        door = lines.door()
        server = start(field_app(APP), env={"AI_STORE_TYPE": "postgres", "DATABASE_URL": door.url(postgres_url)})
        api = client(server)

        def ready() -> tuple[int, str | None]:
            answer = api.get_path("/health/ready")
            return answer.status_code, answer.json().get("code")

        until(lambda: ready() == (200, None))
        door.shut()
        until(lambda: ready()[0] == 503)
        assert ready()[1] in ("store_unavailable", "not_ready")
        assert api.get_path("/health/live").json() == {"status": "live"}
        door.open()
        until(lambda: ready() == (200, None))


def test_a_server_that_stops_with_open_streams_is_not_ready_from_the_signal_on(
    field_app: Any, start: Any, client: Any, reader: Any, until: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, env={"SERVER_STOP_GRACE_S": "30"})
    api = client(server)
    run = api.submit("holder", "hold")
    follower = reader(server, run)
    until(lambda: folder.ledger("holding"))
    follower.wait_for("tool.called")
    server.process.send_signal(signal.SIGTERM)
    until(lambda: not answers_ready(server.url))
    assert server.process.poll() is None, "a run goes on"
    assert not answers_ready(server.url)
    folder.open_gate("held")
    assert server.wait_exit(60) == 0
    again = start(folder)
    assert client(again).run(run["id"])["status"] in ("completed", "running", "queued")
    until(lambda: client(again).run(run["id"])["status"] == "completed")
    assert len(folder.ledger("holding")) == 1, "what ends within the grace is not begun again"


def answers_ready(url: str, get: Callable[..., Any] = httpx2.get) -> bool:
    """Whether a probe finds the server ready; one that is refused does not."""
    try:
        return bool(get(f"{url}/health/ready", timeout=20).status_code == 200)
    except httpx2.TransportError:
        return False
