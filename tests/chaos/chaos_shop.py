"""The app that lives through the chaos: tools of every effect, and a model that reads in its request what comes next.

Every effect is a line of a ledger at the moment at which it happens. Each process has the app's folder as its current
one, and the file is only added to, so all of them write the same ledger.
"""

import asyncio
import json
import os
import random
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from amoxi_py import SyncToolContext, ToolContext, agent, tool
from amoxi_py.errors import InvalidRequest
from amoxi_py.models.history import check_request
from amoxi_py.ports.chat_model import AssistantMessage, CallRequest, ModelRequest, Reply, TextDelta, UserMessage

WORDS = ("Let ", "me ", "see ", "what ", "I ", "can ", "do. ")


def note(what: str, ctx: Any, **more: Any) -> None:
    """Add a line to the ledger."""
    line = {"what": what, "call": ctx.call_id, "run": ctx.run_id, "attempt": ctx.attempt, "pid": os.getpid(), **more}
    write(line | {"at": time.time()})


def write(line: dict[str, Any]) -> None:
    file = os.open("ledger.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


def moment(longest: float = 0.03) -> float:
    """Now and then a long moment, in which more can happen."""
    return random.random() * (10 * longest if random.random() < 0.1 else longest)


@tool(read_only=True)
async def look(order: str, ctx: ToolContext) -> str:
    """Look at an order."""
    await asyncio.sleep(moment())
    return f"order {order} is there"


@tool(idempotent=True)
async def pay(order: str, ctx: ToolContext) -> dict[str, str]:
    """Pay for an order, in two steps."""
    paid = {}
    for step in ("charge", "mail"):
        paid[step] = await ctx.step(step, effect, step, ctx)
        note("returned", ctx, step=step, value=paid[step])
        ctx.progress(f"{step} of {order} is done")
        await asyncio.sleep(moment())
    return paid


async def effect(step: str, ctx: ToolContext) -> str:
    value = secrets.token_hex(4)
    note("effect", ctx, step=step, value=value)
    await asyncio.sleep(moment())
    return value


@tool
def ship(order: str, ctx: SyncToolContext) -> str:
    """Ship an order; nobody may do that twice."""
    note("shipped", ctx)
    time.sleep(moment())
    return f"{order} is on its way"


@tool
async def bill(order: str, ctx: ToolContext) -> str:
    """Send a bill; nobody may do that twice."""
    note("billed", ctx)
    await asyncio.sleep(moment())
    return f"{order} is billed"


@tool(idempotent=True)
async def book(order: str, ctx: ToolContext) -> str:
    """Book an order in the app's own table, where the store has a database to share."""
    try:
        return await ctx.transaction("book", insert_booking, ctx.call_id)
    except InvalidRequest:
        return "nowhere"


async def insert_booking(connection: Any, call: str) -> str:
    value = secrets.token_hex(4)
    await connection.execute("INSERT INTO booking VALUES (%s, %s)", (call, value))
    await asyncio.sleep(moment())
    return value


@tool(needs_approval=True)
async def cancel_order(order: str, ctx: ToolContext) -> str:
    """Cancel an order, when a person says so."""
    note("cancelled", ctx)
    return f"{order} is cancelled"


@tool(idempotent=True)
async def pack(order: str, ctx: ToolContext) -> str:
    """Pack an order, which takes a while."""
    for piece in range(random.randint(2, 6)):
        await asyncio.sleep(0.2)
        ctx.progress(f"piece {piece} of {order}")
    return f"{order} is packed"


class ShopModel:
    """Says the next thing of a story, whose kind is the last word of the person's message."""

    name = "chaos"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        problems = check_request(request)
        if problems:
            write({"what": "refused", "problems": problems})
        place = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
        asked = request.messages[place]
        assert isinstance(asked, UserMessage)
        order, kind = asked.text.split()
        said = sum(isinstance(message, AssistantMessage) for message in request.messages[place:])
        text = ""
        for word in WORDS[: random.randint(0, len(WORDS))]:
            text += word
            yield TextDelta(text=word)
            await asyncio.sleep(moment())
        turns = STORIES[kind]
        if said < len(turns):
            calls = tuple(
                CallRequest(id=f"c{n}", name=name, arguments=json.dumps({"order": order}))
                for n, name in enumerate(turns[said])
            )
            yield Reply(text=text, calls=calls)
        else:
            yield TextDelta(text="Done.")
            yield Reply(text=f"{text}Done.")


STORIES: dict[str, list[list[str]]] = {
    "talk": [],
    "buy": [["look", "pay", "ship"], ["bill", "look"]],
    "twice": [["pay", "pay", "bill"], ["pay"], ["ship", "ship"]],
    "ask": [["cancel_order", "look"], ["ship"]],
    "pack": [["pack", "pay"]],
    "book": [["book", "book"], ["pack", "book"]],
}
TOOLS = [look, pay, ship, bill, cancel_order, pack, book]


@agent(tools=TOOLS, model=ShopModel(), on_busy="queue")
class Shop:
    """You run a shop."""


@agent(tools=TOOLS, model=ShopModel(), on_busy="replace")
class Fickle:
    """You run a shop whose customers change their minds."""
