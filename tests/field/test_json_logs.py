"""Each line of a log says what it is about, so that the story of a request, run, call or person can be found."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

pytestmark = pytest.mark.crash

APP = '''
import asyncio, logging
from amoxi_py import SyncToolContext, ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call
from .ledger import gate, note

log = logging.getLogger("shop")


@tool(idempotent=True)
async def pack(order: str, ctx: ToolContext) -> str:
    """Pack."""
    log.info("packing")
    note("packing", ctx)
    await asyncio.create_task(wrap())
    await gate("packed")
    return f"packed {order}"


async def wrap():
    log.info("wrapping")


@tool(idempotent=True)
def weigh(order: str, ctx: SyncToolContext) -> str:
    """Weigh, in a thread."""
    log.info("weighing")
    return f"weighed {order}"


@agent(
    tools=[pack, weigh],
    model=ScriptedModel({"*": [[call(name, order="SECRET-4711") for name in ("pack", "weigh")], "SECRET-4711."]}),
)
class Packer:
    """You pack."""
'''
JSON = {"LOG_FORMAT": "json", "LOG_LEVEL": "info"}
SECRET = "SECRET-4711"
TOKEN = "acme-token-0123456789"  # of `conftest.TOKENS`


def lines_of(server: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]


def test_lines_have_request_run_call_conversation_and_principal_and_no_value_of_any(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, env=JSON)
    api = client(server)
    answer = api.post_path(
        f"/agents/packer/runs?key={SECRET}", {"message": SECRET}, headers={"X-Request-Id": "from-the-proxy"}
    )
    assert answer.headers["x-request-id"] == "from-the-proxy"
    run = answer.json()
    until(lambda: folder.ledger("packing"))
    folder.open_gate("packed")
    until(lambda: api.run(run["id"])["status"] == "completed")
    messages = api.messages("packer", run["conversation_id"])
    calls = {each["tool"]: each["call_id"] for message in messages for each in message["calls"]}
    by_text = {line["message"]: line for line in lines_of(server)}
    about = {
        "request_id": "from-the-proxy",
        "run_id": run["id"],
        "conversation_id": run["conversation_id"],
        "principal": "api:acme",
    }
    for text, tool in (("packing", "pack"), ("wrapping", "pack"), ("weighing", "weigh")):
        assert by_text[text].items() >= {**about, "call_id": calls[tool], "logger": "shop"}.items(), text
    [access] = [line for line in lines_of(server) if line.get("method") == "POST"]
    told = {"path": "/agents/packer/runs", "status": 202, "logger": "amoxi_py.access"}
    assert access.items() >= {**about, **told}.items()
    assert access["duration_ms"] > 0
    assert SECRET not in server.log()


def test_a_run_that_goes_on_after_a_crash_is_found_by_its_own_id(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, env=JSON)
    run = client(server).submit("packer", "pack")
    until(lambda: folder.ledger("packing"))
    server.kill9()
    folder.open_gate("packed")
    again = start(folder, env=JSON)
    until(lambda: client(again).run(run["id"])["status"] == "completed")
    told = [line for line in lines_of(again) if line["message"] in ("packing", "wrapping")]
    assert len(told) == 2
    for line in told:
        assert (line["run_id"], line["principal"]) == (run["id"], "api:acme")
        assert "request_id" not in line, "no request of this process has to do with it"


def test_two_requests_at_once_do_not_take_each_others_lines(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, env=JSON)
    acme, globex = client(server), client(server, "globex")
    runs = {api: api.submit("packer", "pack") for api in (acme, globex)}
    until(lambda: len(folder.ledger("packing")) == 2)
    folder.open_gate("packed")
    for api, run in runs.items():
        until(lambda api=api, run=run: api.run(run["id"])["status"] == "completed")
    told = {line["run_id"]: line for line in lines_of(server) if line["message"] == "wrapping"}
    assert {told[run["id"]]["principal"] for run in runs.values()} == {"api:acme", "api:globex"}
    assert told[runs[acme]["id"]]["principal"] == "api:acme"
    assert len({line["request_id"] for line in told.values()}) == 2


def test_lines_hide_secrets_in_paths_and_stand_whatever_an_app_writes(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    odd = 'log.info("packing \\udcff", extra={"facts": "of the app"})'
    folder = field_app(APP.replace('log.info("packing")', odd))
    server = start(folder, env={**JSON, "SHOP_API_TOKEN": "hunter2-hunter2"})
    api = client(server)
    assert api.post_path("/runs/hunter2-hunter2/cancel", {}).status_code == 404
    run = api.submit("packer", "pack")
    until(lambda: folder.ledger("packing"))
    folder.open_gate("packed")
    until(lambda: api.run(run["id"])["status"] == "completed")
    lines = lines_of(server)
    assert [line["run_id"] for line in lines if line["message"] == "packing \udcff"] == [run["id"]]
    assert [line["path"] for line in lines if "/cancel" in line.get("path", "")] == ["/runs/***/cancel"]
    assert "hunter2" not in server.log()


def test_a_request_on_the_heels_of_another_is_not_told_as_the_others(field_app: Any, start: Any, until: Any) -> None:
    server = start(field_app(APP), env=JSON)
    first = f"GET /agents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    second = "GET /health/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as link:
        link.sendall((first + second).encode())
        while link.recv(65536):
            pass

    def told() -> list[tuple[Any, ...]]:
        return [(line["status"], line.get("principal")) for line in lines_of(server) if "status" in line]

    until(lambda: len(told()) == 2)
    assert told() == [(200, "api:acme"), (404, None)]
