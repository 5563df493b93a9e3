"""The three steps as tools of an Agno agent, run in the background by AgentOS with its SQLite."""

import os

import uvicorn
from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.openai import OpenAIChat
from agno.os import AgentOS
from three_steps import STEPS

agent = Agent(
    id="worker",
    model=OpenAIChat(id="bench", base_url=os.environ["OPENAI_BASE_URL"], api_key="bench"),
    tools=STEPS,
    db=SqliteDb(db_file="agno.db"),
    telemetry=False,
)
app = AgentOS(agents=[agent], telemetry=False).get_app()

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
