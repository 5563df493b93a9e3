# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "dbos==3.4.0",
#     "fastapi",
#     "httptools",
#     "pydantic-ai-slim[dbos,openai]==2.68.*",
#     "uvicorn",
#     "uvloop",
# ]
#
# [tool.amoxi-bench]
# path = "/chat"
# body = '{"message": "hello {n}", "session": "{session}"}'
# first = "tok0"
# end = "[DONE]"
# ///
"""A pydantic-ai agent as a workflow of DBOS on its SQLite, behind FastAPI: the history of each client is in memory.

Words are streamed from the process that executes the workflow; they are not stored.
"""

import asyncio
import json
import os
from contextlib import asynccontextmanager

import uvicorn
from dbos import DBOS
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel

DBOS(config={"name": "bench", "system_database_url": "sqlite:///dbos.sqlite"})
queues: dict[str, asyncio.Queue] = {}
histories: dict[str, list] = {}


async def tell(ctx, events):
    queue = queues.get(ctx.deps)
    async for event in events:
        text = ""
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            text = event.part.content
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            text = event.delta.content_delta
        if text and queue is not None:
            queue.put_nowait(text)


agent = Agent(
    OpenAIChatModel("bench"),
    name="assistant",
    instructions="You are a helpful assistant.",
    deps_type=str,
    capabilities=[DBOSDurability(event_stream_handler=tell)],
)


@DBOS.workflow()
async def answer(session: str, message: str, history: list | None) -> list:
    return (await agent.run(message, deps=session, message_history=history)).all_messages()


@asynccontextmanager
async def lifespan(app: FastAPI):
    DBOS.launch()
    yield
    DBOS.destroy()


app = FastAPI(lifespan=lifespan)


@app.post("/chat")
async def chat(request: Request):
    asked = await request.json()
    session = asked["session"]
    queue = queues[session] = asyncio.Queue()

    async def run():
        try:
            histories[session] = await answer(session, asked["message"], histories.get(session))
        finally:
            queue.put_nowait(None)

    running = asyncio.create_task(run())

    async def stream():
        while (text := await queue.get()) is not None:
            yield f"data: {json.dumps({'text': text})}\n\n"
        await running
        yield "data: [DONE]\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


if __name__ == "__main__":
    port = int(os.environ["PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning", backlog=2048)
