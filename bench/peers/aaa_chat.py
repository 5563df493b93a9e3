# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "autonomous-agent-architecture==0.6.0",
#     "aaa-server==0.3.0",
#     "httpx",
#     "uvicorn",
#     "uvloop",
# ]
#
# [tool.amoxi-bench]
# setup_path = "/v1/sessions"
# session_field = "session_id"
# path = "/v1/sessions/{session}/messages"
# body = '{"text": "hello {n}", "stream": true}'
# headers = ["Authorization: Bearer bench-key"]
# first = "tok0"
# end = "session.reply"
# ///
"""AAA's server on its SQLite: a chat session for each client, answered with a stream. It is one process.

The limits of its defaults, 8 requests to the model and 8 streams at once, are raised.
"""

import os
import sys

import httpx
from aaa.algos import ToolLoop
from aaa.events import SQLiteEventStore
from aaa.llm import LLMHandler
from aaa.llm.config import LLMConfig
from aaa.llm.openai_compat import OpenAICompatClient
from aaa.runtime import Budget, Engine
from aaa.session import SessionManager
from aaa.tools import ToolRegistry
from aaa_server import ApiKeyAuthenticator, ServerConfig


async def build():
    engine = Engine(store=SQLiteEventStore("log.db"))
    no_limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    model = LLMConfig(base_url=os.environ["OPENAI_BASE_URL"], api_key="bench", model="bench")
    client = OpenAICompatClient(model, http_client=httpx.AsyncClient(timeout=120, limits=no_limits))
    LLMHandler(client, concurrency=4096).attach(engine)
    return ServerConfig(
        engine=engine,
        authenticator=ApiKeyAuthenticator.from_keys({"bench-key": ("bench", "bench")}),
        algorithms={},
        sessions={"chat": SessionManager(engine, ToolLoop(ToolRegistry([]), name="chat", stream=True))},
        budget=Budget(max_steps=100, deadline_s=300),
        max_streams=100_000,
    )


if __name__ == "__main__":
    sys.argv[1:] = ["serve", "aaa_chat:build", "--port", os.environ["PORT"]]  # this file's folder is on the path
    from aaa_server.cli import main

    sys.exit(main())
