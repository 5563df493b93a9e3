"""The three steps as tools of AAA's tool loop on its SQLite, which its app asks to recover open runs at its start."""

import os
from contextlib import asynccontextmanager

import uvicorn
from aaa.algos import ToolLoop
from aaa.events import SQLiteEventStore
from aaa.llm import LLMHandler
from aaa.llm.config import LLMConfig
from aaa.llm.openai_compat import OpenAICompatClient
from aaa.runtime import Engine
from aaa.tools import ToolHandler, ToolRegistry, tool
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from three_steps import STEPS

registry = ToolRegistry([tool(step) for step in STEPS])
loop = ToolLoop(registry, name="worker")


@asynccontextmanager
async def lifespan(app: Starlette):
    model = LLMConfig(base_url=os.environ["OPENAI_BASE_URL"], api_key="bench", model="bench")
    async with Engine(store=SQLiteEventStore("log.db")) as engine:
        LLMHandler(OpenAICompatClient(model)).attach(engine)
        ToolHandler(registry).attach(engine)
        app.state.handles = await engine.recover([loop])
        app.state.engine = engine
        yield


async def start(request):
    request.app.state.handle = await request.app.state.engine.start(loop, {"task": "Do the work."})
    return JSONResponse({})


app = Starlette(routes=[Route("/start", start, methods=["POST"])], lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
