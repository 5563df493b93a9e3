# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "agno==3.1.10",
#     "aiosqlite",
#     "fastapi",
#     "httptools",
#     "openai",
#     "python-multipart",
#     "sqlalchemy[asyncio]",
#     "uvicorn",
#     "uvloop",
# ]
#
# [tool.amoxi-bench]
# path = "/agents/assistant/runs"
# content_type = "application/x-www-form-urlencoded"
# body = "message=hello+{n}&stream=true&session_id={session}"
# first = "tok0"
# end = "event: RunCompleted"
# ///
"""Agno's AgentOS on its SQLite: a session for each client, with its history; the run is stored at its end."""

import os

import uvicorn
from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.openai import OpenAIChat
from agno.os import AgentOS

agent = Agent(
    id="assistant",
    model=OpenAIChat(id="bench", base_url=os.environ["OPENAI_BASE_URL"], api_key="bench"),
    instructions="You are a helpful assistant.",
    db=SqliteDb(db_file="agno.db"),
    add_history_to_context=True,
    telemetry=False,
)
app = AgentOS(agents=[agent], telemetry=False).get_app()

if __name__ == "__main__":
    port = int(os.environ["PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning", backlog=2048)
