"""Ten times more comes than fits: what is too much is refused at once, and what was taken completes undisturbed.

Field case: everybody came at the same moment, and the server answered nobody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx2
import pytest

from amoxi_py.testing import call

GATE, CLIENTS, TRIES = 8, 40, 12
KIOSK = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def work(ctx: ToolContext) -> str:
    """Work until the gate opens."""
    note("work", ctx)
    await gate("work")
    return "worked"


@agent(tools=[work], on_busy="replace")
class Kiosk:
    """You work."""
'''
ENV = {"AI_RUNS_MAX_IN_FLIGHT": str(GATE), "AI_MODELS_CONCURRENCY": "3"}


async def hammer(urls: list[str], token: str) -> list[httpx2.Response]:
    """Let a crowd ask all servers again and again, half of it with idempotency keys."""

    async def ask(n: int) -> list[httpx2.Response]:
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=urls[n % len(urls)], headers=headers, timeout=60, verify=False) as http:
            return [
                await http.post(
                    "/agents/kiosk/runs",
                    json={"message": "work"},
                    headers={"idempotency-key": f"{n}-{tried}"} if n % 4 > 1 else {},
                )
                for tried in range(TRIES)
            ]

    crowd = await asyncio.gather(*(ask(n) for n in range(CLIENTS)))
    return [answer for answers in crowd for answer in answers]


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_two_servers_take_what_fits_refuse_the_rest_and_complete_what_they_took(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    reader: Any,
    until: Any,
    one_story: Any,
) -> None:
    folder = field_app(KIOSK)
    model = strict_model({"work": [call("work"), "All done."], "afterwards": ["Hello."]})
    env = {**ENV, **model_env(model)}
    servers = [start(folder, env=env) for _ in range(2)]
    api = client(servers[0])
    first = api.submit("kiosk", "work")
    follower = reader(servers[1], first)
    until(lambda: folder.ledger("work", run=first["id"]))

    answers = asyncio.run(hammer([server.url for server in servers], "acme-token-0123456789"))
    assert Counter(answer.status_code for answer in answers) == {202: GATE - 1, 429: CLIENTS * TRIES - GATE + 1}
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {(answer.json()["code"], answer.headers["retry-after"]) for answer in refused} == {("busy", "1")}

    taken = [first, *(answer.json() for answer in answers if answer.status_code == 202)]
    until(lambda: len(folder.ledger("work")) == GATE)
    instead = api.post_path("/agents/kiosk/runs", {"message": "work", "conversation_id": first["conversation_id"]})
    assert (instead.status_code, instead.json()["code"]) == (429, "busy")
    assert [api.get_path(f"/runs/{run['id']}").json()["status"] for run in taken] == ["running"] * GATE

    until(lambda: _refused_unread(api), what="who is known to be refused is not read")

    folder.open_gate("work")
    for run in taken:
        assert api.until_status(run["id"])["output"] == "All done."
    one_story(follower.wait_end())
    assert len(folder.ledger("work")) == GATE, "nothing was done twice, and nothing that was refused"
    late = until(lambda: _taken(api.post_path("/agents/kiosk/runs", {"message": "afterwards"})))
    assert api.until_status(late["id"])["output"] == "Hello."


def _refused_unread(api: Any) -> bool:
    """Whether a body that is no JSON is refused as too much, right after another one was."""
    api.post_path("/agents/kiosk/runs", {"message": "work"})
    answer = api.http.post("/agents/kiosk/runs", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code in (422, 429), answer.text
    return bool(answer.status_code == 429)


def _taken(answer: httpx2.Response) -> Any:
    assert answer.status_code in (202, 429), answer.text
    return answer.json() if answer.status_code == 202 else None
