"""The three steps as tools of a LangGraph agent with its saver for SQLite; nothing of it takes a thread up again."""

import asyncio
import os
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import create_react_agent
from three_steps import STEPS


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with AsyncSqliteSaver.from_conn_string("threads.db") as saver:
        app.state.graph = create_react_agent(ChatOpenAI(model="bench"), STEPS, checkpointer=saver)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/start")
async def start():
    config = {"configurable": {"thread_id": "one"}}
    app.state.running = asyncio.create_task(
        app.state.graph.ainvoke({"messages": [("user", "Do the work.")]}, config, durability="sync")
    )
    return {"id": "one"}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
