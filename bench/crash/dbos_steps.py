"""The three steps as tools of a pydantic-ai agent that is a workflow of DBOS, each a step of it."""

import os
from contextlib import asynccontextmanager

import uvicorn
from dbos import DBOS
from fastapi import FastAPI
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from three_steps import STEPS

DBOS(config={"name": "steps", "system_database_url": "sqlite:///dbos.sqlite"})
agent = Agent(OpenAIChatModel("bench"), name="worker", capabilities=[DBOSDurability()])
for step in STEPS:
    agent.tool_plain(DBOS.step()(step))


@DBOS.workflow()
async def work() -> str:
    return (await agent.run("Do the work.")).output


@asynccontextmanager
async def lifespan(app: FastAPI):
    DBOS.launch()
    yield
    DBOS.destroy()


app = FastAPI(lifespan=lifespan)


@app.post("/start")
async def start():
    return {"id": (await DBOS.start_workflow_async(work)).workflow_id}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
