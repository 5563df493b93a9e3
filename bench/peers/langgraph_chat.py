# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "langgraph==1.2.24",
#     "langgraph-checkpoint-sqlite",
#     "langchain-openai",
#     "fastapi",
#     "uvicorn",
#     "uvloop",
#     "httptools",
# ]
#
# [tool.amoxi-bench]
# path = "/chat"
# body = '{"message": "hello {n}", "thread": "{session}"}'
# first = "tok0"
# end = "[DONE]"
# ///
"""LangGraph with its saver for SQLite, behind FastAPI: one thread of messages for each client. It is one process."""

import json
import os
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

model = ChatOpenAI(model="bench", streaming=True, max_retries=0)


async def answer(state: MessagesState):
    return {"messages": [await model.ainvoke(state["messages"])]}


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with AsyncSqliteSaver.from_conn_string("threads.db") as saver:
        graph = StateGraph(MessagesState)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        app.state.graph = graph.compile(checkpointer=saver)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chat")
async def chat(request: Request):
    asked = await request.json()
    config = {"configurable": {"thread_id": asked["thread"]}}

    async def stream():
        messages = {"messages": [("user", asked["message"])]}
        async for chunk, _ in request.app.state.graph.astream(messages, config, stream_mode="messages"):
            yield f"data: {json.dumps({'text': chunk.content})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


if __name__ == "__main__":
    port = int(os.environ["PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning", backlog=2048)
