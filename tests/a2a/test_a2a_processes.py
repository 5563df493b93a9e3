"""A2A on real servers with one store: a stream, a cancel and an answer on another server than the one that works."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from processes import ServerProcess

pytestmark = [pytest.mark.anyio, pytest.mark.crash]

TOKEN = "partner-token-0123456789"
APP = {
    "app/__init__.py": "",
    "app/shop.py": '''
import asyncio
import os

from amoxi_py import ToolContext, agent, tool


@tool(idempotent=True)
async def pay(amount: int, ctx: ToolContext) -> str:
    """Pay."""
    paid = await ctx.step("pay", write, f"paid {amount}")
    try:
        while not os.path.exists(f"release-{amount}"):
            write(f"working {amount} {os.getpid()}")
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        write(f"stopped {amount} {os.getpid()}")
        raise
    return paid


@tool(read_only=True)
async def paint(ctx: ToolContext) -> str:
    """Paint."""
    return f"painted {await ctx.ask('Which color?')}"


def write(line: str) -> str:
    with open("ledger.log", "a") as ledger:
        ledger.write(line + chr(10))
    return line


@agent(tools=[pay, paint])
class Shop:
    """You sell."""
''',
}
SETTINGS = {
    "app": {"name": "shop"},
    "ai": {"a2a": {"enabled": True}, "runs": {"lease-ms": 500}},
    "server": {"stop-grace-s": 1},
    "log": {"level": "debug"},
}
ENVIRON = {"AI_A2A_CALLERS_PARTNER": TOKEN}
WAITS, WORKS, ENDED = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"


class Partner:
    """A caller of one server."""

    def __init__(self, server: ServerProcess) -> None:
        headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"}
        self._http = httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60)
        self._sent = 0

    async def __aenter__(self) -> Partner:
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self._http.aclose()

    async def call(self, method: str, **params: Any) -> Any:
        answer = (await self._http.post("/a2a", json=self._request(method, params))).json()
        return answer["result"] if "result" in answer else answer["error"]

    @asynccontextmanager
    async def stream(self, method: str, **params: Any) -> AsyncIterator[AsyncIterator[Any]]:
        async with self._http.stream("POST", "/a2a", json=self._request(method, params)) as answer:
            lines = answer.aiter_lines()
            yield (json.loads(line[5:])["result"] async for line in lines if line.startswith("data:"))

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._sent += 1
        return {"jsonrpc": "2.0", "id": self._sent, "method": method, "params": params}


def said(text: str, message_id: str, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def ledger(folder: Path, start: str) -> list[str]:
    path = folder / "ledger.log"
    return [line for line in path.read_text("utf-8").splitlines() if line.startswith(start)] if path.exists() else []


def last_about(folder: Path, amount: int) -> str:
    return [line for line in ledger(folder, "") if line.split()[1] == str(amount)][-1]


def state(event: Any) -> str:
    told = event.get("task") or event.get("statusUpdate") or event
    return str(told["status"]["state"])


async def fold(events: AsyncIterator[Any]) -> tuple[str, str]:
    """Return the last state and the answer that a stream told."""
    last, text = "", ""
    async for event in events:
        if "artifactUpdate" in event:
            update = event["artifactUpdate"]
            piece = "".join(part.get("text", "") for part in update["artifact"]["parts"])
            text = text + piece if update.get("append") else piece
        else:
            last = state(event)
    return last, text


def answer_of(task: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for artifact in task["artifacts"] for part in artifact["parts"])


async def test_a_kill_leaves_streams_answers_and_cancels_on_the_other_servers_whole(
    app_folder: Any, serve: Any, until: Any
) -> None:
    folder: Path = app_folder(APP, SETTINGS)
    works = serve(folder, env=ENVIRON, wait_ready=False)
    serves = serve(folder, env={**ENVIRON, "AI_RUNS_WORKER": "false"}, wait_ready=False)
    works.wait_ready()
    serves.wait_ready()

    async with Partner(works) as there, Partner(serves) as here:
        async with here.stream("SendStreamingMessage", **said("Pay amount 1", "m1")) as events:
            paying = (await anext(events))["task"]
            asked = (await there.call("SendMessage", **said("Paint", "m2")))["task"]
            assert state(asked) == WAITS
            async with here.stream("SubscribeToTask", id=asked["id"]) as of_asked:
                assert state(await anext(of_asked)) == WAITS
                await until(lambda: ledger(folder, "working 1 "))
                works.kill9()
                replacement = serve(folder, env=ENVIRON)
                (folder / "release-1").touch()
                assert await fold(events) == (ENDED, "paid 1")
                answered = await here.call("SendMessage", **said("blue", "m3", taskId=asked["id"]))
                assert state(answered) == ENDED
                assert await fold(of_asked) == (ENDED, answer_of(answered["task"]))
        assert ledger(folder, "paid 1") == ["paid 1"]

        async with Partner(replacement) as there_again:
            for task_id in (paying["id"], asked["id"]):
                told = [await partner.call("GetTask", id=task_id) for partner in (here, there_again)]
                assert told[0] == told[1]
                assert state(told[0]) == ENDED

            begun = await here.call(
                "SendMessage", **said("Pay amount 2", "m4"), configuration={"returnImmediately": True}
            )
            task_id = begun["task"]["id"]
            async with there_again.stream("SubscribeToTask", id=task_id) as of_cancelled:
                await until(lambda: ledger(folder, "working 2 "))
                assert state(await here.call("CancelTask", id=task_id)) == "TASK_STATE_CANCELED"
                assert (await fold(of_cancelled))[0] == "TASK_STATE_CANCELED"
            stopped = f"stopped 2 {replacement.pid}"
            await until(lambda: last_about(folder, 2) == stopped)

            async with here.stream("SendStreamingMessage", **said("Pay amount 3", "m5")) as kept:
                begun = (await anext(kept))["task"]
                send = asyncio.create_task(there_again.call("SendMessage", **said("Pay amount 4", "m6")))
                async with there_again.stream("SubscribeToTask", id=begun["id"]) as cut:
                    await until(lambda: ledger(folder, "working 3 ") and ledger(folder, "working 4 "))
                    assert last_about(folder, 2) == stopped, "it stays stopped"
                    replacement.signal(signal.SIGTERM)
                    assert state((await send)["task"]) in (WORKS, "TASK_STATE_SUBMITTED")
                    assert (await fold(cut))[0] in (WORKS, "TASK_STATE_SUBMITTED")
                assert replacement.wait_exit() == 0
                last = serve(folder, env=ENVIRON)
                for amount in (3, 4):
                    (folder / f"release-{amount}").touch()
                assert await fold(kept) == (ENDED, "paid 3")
        async with Partner(last) as there_at_last:
            again = await there_at_last.call("SendMessage", **said("Pay amount 4", "m6"))
            assert answer_of(again["task"]) == "paid 4"
    assert [ledger(folder, f"paid {amount}") for amount in (3, 4)] == [["paid 3"], ["paid 4"]]
    for server in (works, serves, replacement, last):
        assert TOKEN not in server.log()
        assert "Traceback" not in server.log()
