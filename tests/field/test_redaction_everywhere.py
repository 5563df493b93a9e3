"""What `@redact` hides is nowhere: not in the store, the log, the events, the answers, nor in what a model is asked."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest

from amoxi_py.models.script import ScriptedReply
from amoxi_py.testing import call, pause

SHOP = '''
import re
from pydantic import BaseModel
from amoxi_py import RunContext, ToolContext, ToolError, agent, redact, step, tool
from .ledger import note

CARD = "CARD-" + "0" * 4


class Receipt(BaseModel):
    card: str


@redact(longest=40)
def hide(text: str) -> str:
    return re.sub(r"CARD-[0-9]+", "CARD-***", text)


def charge(card: str) -> dict[str, str]:
    return {"of": card, f"{CARD}07": "key"}


def fails() -> None:
    raise ValueError(f"no money on {CARD}08")


@tool(idempotent=True)
async def pay(card: str, ctx: ToolContext) -> Receipt:
    """Pay."""
    ctx.progress(f"paying with {CARD}03")
    charged = await ctx.step(f"charge {CARD}04", charge, card)
    note("charged", ctx, step=charged, card=card)
    try:
        await ctx.step("fails", fails)
    except Exception as error:
        ctx.progress(str(error))
    await ctx.save_file(f"receipt {CARD}05.txt", b"paid")
    return Receipt(card=f"{CARD}06")


@tool(read_only=True)
async def told() -> str:
    """Fail in words."""
    raise ToolError(f"the bank does not know {CARD}09")


@tool(read_only=True)
async def breaks() -> str:
    """Fail."""
    try:
        raise OSError(f"no answer about {CARD}10")
    except OSError as error:
        raise RuntimeError(f"broken at {CARD}11") from error


@tool(idempotent=True)
async def asks(ctx: ToolContext) -> str:
    """Ask."""
    said = await ctx.ask(f"May I use {CARD}12?")
    sent = await ctx.wait_for("card")
    note("asked", ctx, said=said, sent=sent)
    return "asked"


@tool(needs_approval=True)
async def cancel(card: str) -> str:
    """Cancel."""
    return f"cancelled {card}"


@agent(tools=[pay, told, breaks, asks, cancel])
class Shop:
    def instructions(self, ctx: RunContext) -> str:
        return f"You sell. The shop's card is {CARD}13."
'''
LETTERS = list("Your card CARD-000014 is charged, and nothing else of what you have was looked at.")
SCRIPT = [
    [
        "I will use CARD-000015. ",
        call("pay", card="CARD-000016"),
        call("told"),
        call("breaks"),
        call("asks"),
        call("cancel", card="CARD-000017"),
        call("nothing", card="CARD-000018"),
    ],
    ScriptedReply(parts=tuple(part for letter in LETTERS for part in (letter, pause(0.002)))),
]


@pytest.mark.crash
@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_nothing_that_is_hidden_is_stored_logged_told_or_sent(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, store_kind: str, store_env: Any
) -> None:
    folder, model = field_app(SHOP), strict_model({"*": SCRIPT})
    server = start(folder, env={**model_env(model), "LOG_LEVEL": "debug"})
    api = client(server)
    upload = api.http.post("/files", files={"file": ("my CARD-000001.txt", b"a list", "text/plain")})
    body = {"message": "Charge CARD-000002", "files": [upload.json()["id"]]}
    headers = {"idempotency-key": "4711"}
    run = api.post_path("/agents/shop/runs", body, headers=headers).json()
    run = api.until_status(run["id"], "waiting")
    waiting = {one["kind"]: one for one in run["waiting_for"]}
    question, approval = waiting["question"]["call_id"], waiting["approval"]["call_id"]
    answered = api.post_path(f"/runs/{run['id']}/answers/{question}", {"answer": "Use CARD-000019"})
    signal = api.post_path(f"/runs/{run['id']}/signals/card", {"payload": {"CARD-000020": ["CARD-000021"]}})
    decided = api.post_path(
        f"/runs/{run['id']}/approvals/{approval}",
        {"decision": "approve", "reason": "It is CARD-000022", "arguments": {"card": "CARD-000023"}},
    )
    assert [one.status_code for one in (answered, signal, decided)] == [200, 202, 200], signal.text
    run = api.until_status(run["id"], "completed", "failed")
    assert (run["status"], run["output"][:20]) == ("completed", "Your card CARD-*** i")
    events = api.events(run["id"])
    conversation = api.get_path(f"/agents/shop/conversations/{run['conversation_id']}").json()
    assert api.post_path("/agents/shop/runs", body, headers=headers).json()["id"] == run["id"]
    held: dict[str, Any] = {
        "doors": [upload.text, answered.text, signal.text, decided.text, json.dumps([run, conversation])],
        "events": json.dumps([event.data for event in events]),
        "ledger": folder.ledger(),
        "model": [repr(request) for request in model.requests],
    }
    assert [one.status_code for one in (answered, signal, decided)] == [200, 202, 200]
    assert server.stop() == 0
    held["log"] = server.log()
    assert "raised RuntimeError" in held["log"]
    held["store"] = all_that_is_stored(folder, store_env)
    hidden = {where: len(re.findall(r"CARD-\*\*\*", str(what))) for where, what in held.items()}
    assert all(hidden.values()), hidden
    assert {
        where: re.findall(r".{30}CARD-0.{6}", str(what)) for where, what in held.items() if "CARD-0" in str(what)
    } == {}


def all_that_is_stored(folder: Any, store_env: Any) -> list[str]:
    if not store_env:
        return [file.read_bytes().decode("latin-1") for file in (folder / "data").rglob("*") if file.is_file()]
    with psycopg.connect(store_env["DATABASE_URL"]) as connection:
        tables = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'amoxi'")]
        return [text for table in tables for (text,) in connection.execute(f"SELECT t::text FROM amoxi.{table} t")]
